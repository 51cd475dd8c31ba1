"""Models in other hands: estimators, saved and packed models, predictions for new people, explanation of one scan."""
