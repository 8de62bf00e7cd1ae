"""Head for parametric actions, which reads action masks and embeddings of the available actions."""
