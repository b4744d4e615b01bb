"""Samples of operators that take a tensor and one dimension."""


def along_dim(make):
    return [((make((3, 5)), 1), {}), ((make((3, 5)), 0), {}), ((make((2, 3, 4)), -2), {}), ((make((5, 3)).t(), 1), {}), ((make(()), 0), {}),
            ((make((0, 3)), 1), {}), ((make((2, 37)), -1), {}), ((make((1,)), 0), {})]
