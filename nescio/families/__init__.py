"""Families of approximations: which laws a variational posterior may have."""

from nescio.families.approximation import Approximation
from nescio.families.concrete import ConcreteDropout, drop_rates
from nescio.families.decay import model_precision, papers_penalty, prior_scale, weight_decay
from nescio.families.dropout import BernoulliDropout
from nescio.families.family import Block, Factor, Family
from nescio.families.full_rank import FullRank
from nescio.families.gaussian_dropout import GaussianDropout
from nescio.families.independent import Gaussian
from nescio.families.inverse_cdf import InverseCDF, Logistic
from nescio.families.low_rank import LowRank
from nescio.families.matrix_normal import MatrixNormal
from nescio.families.mean_field import MeanField
from nescio.families.multiplicative_flow import MultiplicativeFlow
from nescio.families.net_dropout import NetDropout
from nescio.families.point import Point
from nescio.families.scaled import Scaled
from nescio.families.variational_dropout import VariationalDropout, log_alphas

__all__ = [
    "Approximation",
    "BernoulliDropout",
    "Block",
    "ConcreteDropout",
    "Factor",
    "Family",
    "FullRank",
    "Gaussian",
    "GaussianDropout",
    "InverseCDF",
    "Logistic",
    "LowRank",
    "MatrixNormal",
    "MeanField",
    "MultiplicativeFlow",
    "NetDropout",
    "Point",
    "Scaled",
    "VariationalDropout",
    "drop_rates",
    "log_alphas",
    "model_precision",
    "papers_penalty",
    "prior_scale",
    "weight_decay",
]
