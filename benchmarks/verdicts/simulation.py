"""What a simulation of verdicts is: data whose right answer is known, and what two rules say about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Said = dict[str, bool | None]
"""``former`` and ``present`` rule: True: says yes; False: says no; None: says that it cannot be tested."""


@dataclass(frozen=True)
class Simulation:
    """Repeated draws of data, and how often each rule says yes.

    Attributes
    ----------
    verdict : str
        What is judged, as in the report, such as ``moments predict the class``; or an interval's coverage, where yes
        means that the interval misses the truth.
    data : str
        What the data are, such as ``noise, 10 folds``.
    effect : bool
        Whether a yes is right: the share of yes is then the power, otherwise the rate of false positives.
    draw : callable
        Takes a seed; a function of a module, so that processes can share the work.
    nominal : float, optional
        Largest rate of false positives that the rule promises.
    repetitions : int
    """

    verdict: str
    data: str
    effect: bool
    draw: Callable[[int], Said]
    nominal: float | None = None
    repetitions: int = 200
