"""Networks: tensors to tensors, knowing no episodes. SGD owns what is in this room; it is frozen once meta-trained."""
