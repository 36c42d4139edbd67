"""The library's own expressions as text: `8 * (MAP() >> MCLMC())`, read against a catalogue of names and never evaluated as code.

    method("5 * MAP(epochs=50)")        prior("Normal(0, HalfCauchy(1.).per('input'))")
    likelihood("Gaussian(Learned(1.))")     net("mlp(inputs, 50, outputs, activation=Tanh)", inputs=8, outputs=1)

`spell(value)` writes the shortest expression that reads back as the value.
"""

from nescio.expressions.catalogue import Entry, catalogue
from nescio.expressions.parse import likelihood, method, net, prior
from nescio.expressions.spell import spell

__all__ = ["Entry", "catalogue", "likelihood", "method", "net", "prior", "spell"]
