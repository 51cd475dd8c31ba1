"""Parts of models that need no name in the registry: connectivity, feature models and checks of settings."""
