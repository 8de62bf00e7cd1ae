"""Export from TensorFlow: a policy as a traced function, and TensorFlow's file formats."""
