"""Action distributions in the form that Ray's learners and connectors use."""
