"""Cross-validation folds and the audit that keeps them free of leaks. `bolt.folds(y, groups)` splits scans."""

from bolt.io.packages import make_callable

make_callable(__name__, "bolt.share.functions", "folds")
