"""What is TensorFlow's: a policy as one traced function, and the formats that TensorFlow writes."""
