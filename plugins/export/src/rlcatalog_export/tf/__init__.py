"""Export in TensorFlow: a policy as one traced function, and the formats that TensorFlow writes."""
