"""The sink: rows become messages, at three levels of delivery, in batch and stream."""
