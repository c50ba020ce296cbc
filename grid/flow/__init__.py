"""Admission control in front of the pick: it says when, the picker says where. Not built yet."""
