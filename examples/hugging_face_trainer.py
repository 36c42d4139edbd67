"""A small transformer with random weights under a Hugging Face Trainer: the loss of nescio is the model that the Trainer trains.

transformers and accelerate are not among nescio's extras; `pip install transformers accelerate` brings them. A Trainer wants a module that
takes a batch by name and gives a dictionary with a loss: eight lines around `loss(x, y)`. The network is an unmodified
BertForSequenceClassification of toy size, made here, not fetched; its embeddings, attention and norm layers all become random.

    python examples/hugging_face_trainer.py [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from nescio import Model
from nescio.evaluation import accuracy
from nescio.infer import VI
from nescio.infer.elbo import NegativeELBO
from nescio.infer.families import MeanField
from nescio.laws import Normal
from nescio.likelihoods import Categorical
from nescio.noise import Noise

VOCABULARY, LENGTH = 20, 8


class Logits(nn.Module):
    """From tokens to logits, without the dictionary around them."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(input_ids=tokens).logits


class Task(nn.Module):
    """What a Trainer calls."""

    def __init__(self, loss: NegativeELBO) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, tokens: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.loss(tokens, labels)}


def words(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of tokens; the label says whether small ones outnumber large ones."""
    tokens = Noise(seed).at("words").integers(0, VOCABULARY, n, LENGTH)
    return tokens, ((tokens < VOCABULARY // 2).sum(1) > LENGTH // 2).long()


def rows(x: Tensor, y: Tensor) -> list[dict[str, Any]]:
    return [{"tokens": tokens, "labels": label} for tokens, label in zip(x, y, strict=True)]


def main(quick: bool) -> dict[str, float]:
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, num_labels=2, **size, **plain)
    net = Logits(BertForSequenceClassification(config))
    x, y = words(64 if quick else 2000, 0)
    model = Model(net, Normal(0, 1), Categorical())
    posterior, loss = VI(MeanField(sd=0.02)).objective(model, (x, y))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1 if quick else 20,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(Task(loss), arguments, train_dataset=rows(x, y))
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    x_test, y_test = words(20 if quick else 500, 1)
    predictive = posterior.predict(x_test, draws=5 if quick else 50)
    found = {"accuracy": accuracy(predictive, y_test), "mutual information": float(predictive.epistemic.mean())}
    print(
        f"accuracy {found['accuracy']:.3f}, mutual information of label and weights {found['mutual information']:.3f}"
    )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows and epochs")
    main(parser.parse_args().quick)
