"""A card as a user calls it: embedding bags, networks, training, serving."""
