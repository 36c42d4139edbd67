"""Runs that describe themselves: from a file and expressions to a folder that predicts, resumes and can be run again.

run = begin("concrete.csv", "strength", out="run")      # reads, chooses what was not given, writes the folder
posterior = go(run)                                      # fits, goes on where it was if it had been stopped
run = open_run("run");  run.posterior()                  # later, elsewhere
"""

from nescio.runs.begin import Wishes, begin
from nescio.runs.config import Config
from nescio.runs.folder import Run, open_run
from nescio.runs.given import Given, read_given
from nescio.runs.go import go
from nescio.runs.inputs import Inputs
from nescio.runs.predict import Rule, columns, rule

__all__ = [
    "Config", "Given", "Inputs", "Rule", "Run", "Wishes", "begin", "columns", "go", "open_run", "read_given", "rule",
]  # fmt: skip
