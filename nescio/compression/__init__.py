"""From a posterior to a small, fast, plain network, and to a file of the size that is claimed."""

from nescio.compression.choice import ByEvidence, Choice, Promised
from nescio.compression.compressed import Compressed, load_compressed
from nescio.compression.compressing import compress
from nescio.compression.cost import flops, seconds
from nescio.compression.export import exported, to_onnx
from nescio.compression.moments import Moments, moments, nats
from nescio.compression.precision import Codebook, Precision, Steps, predicted_loss
from nescio.compression.rules import GroupLogAlpha, GroupScale, GroupSignalToNoise, LogAlpha, Rule, SignalToNoise
from nescio.compression.shrinking import Shrunk, shrink

__all__ = [
    "ByEvidence",
    "Choice",
    "Codebook",
    "Compressed",
    "GroupLogAlpha",
    "GroupScale",
    "GroupSignalToNoise",
    "LogAlpha",
    "Moments",
    "Precision",
    "Promised",
    "Rule",
    "Shrunk",
    "SignalToNoise",
    "Steps",
    "compress",
    "exported",
    "flops",
    "load_compressed",
    "moments",
    "nats",
    "predicted_loss",
    "seconds",
    "shrink",
    "to_onnx",
]
