"""Decisions under a predictive: expected costs, what knowing more would be worth, and learning by acting."""

from nescio.decisions.bandit import Bandit, Greedy, Play, Policy, Thompson, play
from nescio.decisions.costs import Decisions, decide, worth

__all__ = ["Bandit", "Decisions", "Greedy", "Play", "Policy", "Thompson", "decide", "play", "worth"]
