"""Cross-validation folds and the audit that keeps them free of leaks."""
