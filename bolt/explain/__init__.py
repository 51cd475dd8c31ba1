"""Explanations: which volumes and regions drive a prediction. `bolt.explain(model, series)` explains one scan."""

from bolt.io.packages import make_callable

make_callable(__name__, "bolt.share.explanation", "explain")
