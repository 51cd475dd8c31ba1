"""Cross-validation folds and the audit that keeps them free of leaks. `bolt.folds(y, groups)` splits scans."""

from bolt.io.callable import make_callable

make_callable(__name__, "bolt.api.splits", "folds")
