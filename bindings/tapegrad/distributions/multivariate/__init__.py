"""Distributions of vectors and matrices: normal vectors, points of the simplex, covariance and correlation matrices."""
