"""What Python users import: estimators in scikit-learn's conventions, and the functions under the commands."""
