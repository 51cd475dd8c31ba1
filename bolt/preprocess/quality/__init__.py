"""Quality of preprocessed images: measures and pictures."""
