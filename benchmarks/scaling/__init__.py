"""How training on many machines scales: a simulator, what it says of TensorFlow's paper, and of tapegrad's own engines.

`python -m benchmarks.scaling [--measure] [--out FOLDER]` writes the figures of docs/scaling.md. network.py moves bytes over links that
flows share, parameter_server.py and backup.py are the two ways of training in "TensorFlow: A system for large-scale machine learning"
(Abadi et al., OSDI 2016, sections 4.4 and 6.2 to 6.3), engines.py is the all-reduce of distributed/, measured with 1 to 4 ranks here.
"""
