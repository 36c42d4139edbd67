"""Have the chains mixed? R-hat, effective sample sizes, Monte Carlo errors and E-BFMI: arrays in, numbers out."""

from nescio.diagnose.diagnosis import Diagnosis, diagnose, reasons
from nescio.diagnose.statistics import (
    ebfmi,
    ess_bulk,
    ess_mean,
    ess_median,
    ess_quantile,
    ess_raw,
    ess_sd,
    ess_tail,
    mcse_mean,
    mcse_median,
    mcse_quantile,
    mcse_sd,
    rhat,
    rhat_raw,
)

__all__ = [
    "Diagnosis",
    "diagnose",
    "ebfmi",
    "ess_bulk",
    "ess_mean",
    "ess_median",
    "ess_quantile",
    "ess_raw",
    "ess_sd",
    "ess_tail",
    "mcse_mean",
    "mcse_median",
    "mcse_quantile",
    "mcse_sd",
    "reasons",
    "rhat",
    "rhat_raw",
]
