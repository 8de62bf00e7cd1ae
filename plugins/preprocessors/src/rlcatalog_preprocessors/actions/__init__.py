"""Codecs of actions: what is to be known of the actions of each kind of space Gymnasium has."""
