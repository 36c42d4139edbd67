"""All planted faults, from every room. Each names the check that catches it; tests/test_faults.py plants them one by one."""

from __future__ import annotations

import faults_at_work
import faults_comparison
import faults_compress
import faults_core
import faults_diagnose
import faults_dropout
import faults_families
import faults_heads
import faults_laplace
import faults_laws
import faults_marginal
import faults_mclmc
import faults_native
import faults_nuts
import faults_predictive
import faults_report
import faults_resume
import faults_samplers
import faults_stochastic
import faults_store
import faults_vae
import faults_vi
from fault import Fault

FAULTS: list[Fault] = [
    *faults_laws.FAULTS,
    *faults_core.FAULTS,
    *faults_predictive.FAULTS,
    *faults_samplers.FAULTS,
    *faults_stochastic.FAULTS,
    *faults_nuts.FAULTS,
    *faults_mclmc.FAULTS,
    *faults_native.FAULTS,
    *faults_diagnose.FAULTS,
    *faults_store.FAULTS,
    *faults_resume.FAULTS,
    *faults_vi.FAULTS,
    *faults_vae.FAULTS,
    *faults_families.FAULTS,
    *faults_laplace.FAULTS,
    *faults_heads.FAULTS,
    *faults_marginal.FAULTS,
    *faults_dropout.FAULTS,
    *faults_compress.FAULTS,
    *faults_at_work.FAULTS,
    *faults_report.FAULTS,
    *faults_comparison.FAULTS,
]

__all__ = ["FAULTS", "Fault"]
