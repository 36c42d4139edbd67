"""All planted faults, from every room. Each names the check that catches it; tests/test_faults.py plants them one by one."""

from __future__ import annotations

import faults_core
import faults_laws
import faults_predictive
import faults_samplers
from fault import Fault

FAULTS: list[Fault] = [*faults_laws.FAULTS, *faults_core.FAULTS, *faults_predictive.FAULTS, *faults_samplers.FAULTS]

__all__ = ["FAULTS", "Fault"]
