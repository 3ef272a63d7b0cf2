"""Schedules: the order in which a device transforms, sends and visits blocks, by what computes."""
