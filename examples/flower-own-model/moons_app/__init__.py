"""A perceptron that tells two moons apart, trained under contract."""
