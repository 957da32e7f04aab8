"""The seams and their real forms: clock, disk, net, tasks, entropy."""
