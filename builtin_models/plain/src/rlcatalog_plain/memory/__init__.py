"""Plain memories: recurrent layers and modules with a state, after any trunk."""
