"""Names of PyTorch that exist for imports and queries only, or raise an error when used: a table of modules by path and of their names.

importer.py makes the modules; kinds.py explains the rows. A row of a module that is a file of its own (module(None, ...)) is found by its
`__getattr__`, see `more_names` in _lazy.py. What does real work is no row: it is a module of the library.
"""

import collections.abc
import contextlib
import math
import types

from .. import _hints
from .kinds import (
    Module,
    SecondPath,
    borrowed,
    classes,
    dataclass,
    defined,
    enumeration,
    functions,
    module,
    refused,
    subclasses,
    values,
)

MODULES: dict[str, Module | SecondPath] = {}

# Compilers: functions come back as they are, switches are kept.

_NO_GRAPHS = _hints.NO_GRAPHS
_NO_COMPILER = "nothing is compiled: tapegrad runs eagerly"
_NO_FAKES = 'there are no fake tensors: tensors on the device "meta" have shapes and no data'

MODULES.update({
    "compiler": module(
        "What scripts ask of PyTorch's compiler: here, of recorded steps.",
        borrowed("_root.recording", "is_compiling is_dynamo_compiling=is_compiling is_exporting"),
        functions("fn", "allow_in_graph(fn) assume_constant_result(fn)", "The function itself."),
        functions("(lambda f: f) if fn is None else fn", "disable(fn=None, recursive=True, *, reason=None)",
                  "The function itself; without one, a decorator that returns its function."),
        functions("None", "cudagraph_mark_step_begin()", "Accepted; no graph is replayed."),
        functions("[]", "list_backends(exclude_tags=())", "None."),
        defined("reset set_stance")),
    "_dynamo": module(
        "PyTorch's compiler of byte code, as scripts steer it. No byte code is compiled: switches are kept, decorators give their function back.",
        borrowed("compiler", "allow_in_graph assume_constant_result disable is_compiling list_backends reset"),
        functions("lambda fn: fn", 'optimize(backend="inductor", *args, **options)', "A decorator that gives its function or module back."),
        functions("(lambda f: f) if fn is None else fn", "run(fn=None)", "The function itself."),
        functions("fn", "disallow_in_graph(fn)", "The function itself."),
        functions("None", "graph_break(*args, **kwargs)", "There is no graph to break."),
        functions("None", "mark_dynamic(t, index=None, *args, **kwargs) mark_static(t, index=None, *args, **kwargs) "
                          "maybe_mark_dynamic(t, index=None, *args, **kwargs)", "Accepted: any size may differ from call to call."),
        functions("None", "mark_static_address(t, guard=False)", "Accepted: nothing is recorded whose memory would have to stay."),
        defined("explain"),
        classes("OptimizedModule", "nothing is compiled: compile() gives the module itself back", bases="nn.Module")),
    "_dynamo.config": module(
        "Switches of PyTorch's compiler, kept for scripts that set them.",
        values(cache_size_limit=8, recompile_limit=8, accumulated_cache_size_limit=256, suppress_errors=False, verbose=False, dynamic_shapes=False,
               optimize_ddp=False, automatic_dynamic_shapes=True, capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False,
               guard_nn_modules=False, inline_inbuilt_nn_modules=False, log_level=None, skip_fwd_side_effects_in_bwd_under_checkpoint=False),
        defined("patch")),
    "_dynamo.eval_frame": module(
        "What PyTorch's compiler makes of a module: never here, so `isinstance(model, OptimizedModule)` is False.",
        borrowed("_dynamo", "OptimizedModule"), functions("False", "is_dynamo_supported() is_inductor_supported()", "Always false.")),
    "_dynamo.backends": module("Backends of PyTorch's compiler, by name: functions are recorded whatever the backend."),
    "_dynamo.backends.debugging": module("Backends that show graphs, of which there are none.", defined("ExplainOutput"),
                                         classes("ExplainWithBackend", _NO_COMPILER)),
    "_dynamo.backends.registry": module("Names of backends.", functions("(lambda f: f) if compiler_fn is None else compiler_fn",
                                        "register_backend(compiler_fn=None, name=None, tags=())", "The function itself; it is never called.")),
    "_dynamo._trace_wrapped_higher_order_op": module(
        "The one name of PyTorch's file of this name that libraries use.",
        subclasses("TransformGetItemToIndex", contextlib.nullcontext,
                   "A context in which `x[i]` takes tensors of one element as indices under vmap; they always are taken here.")),
    "jit": module(
        None, functions("False", "is_scripting() onednn_fusion_enabled()", "Always false."), borrowed("_root.recording", "is_tracing=is_exporting"),
        functions("fn", "export(fn) interface(fn) script_if_tracing(fn) script_method(fn) unused(fn) _overload(fn) _overload_method(fn) _script_if_tracing(fn)",
                  "The function itself."),
        functions("value", "Attribute(value, type=None)", "The value; its type would be the compiler's."),
        functions("the_value", "annotate(the_type, the_value)", "The value."),
        functions("None", "enable_onednn_fusion(enabled)", "Accepted."), functions("[]", "set_fusion_strategy(strategy)", "Accepted; nothing is fused."),
        values(strict_fusion=contextlib.nullcontext), classes("ScriptFunction", "functions are not compiled"),
        subclasses("Error", RuntimeError, "PyTorch's error of compiled code; never raised."),
        subclasses("ScriptWarning", Warning, "PyTorch's warning of its compiler; never given."),
        refused("_get_trace_graph", _NO_GRAPHS),
        refused("export_opnames", "programs have operators of tapegrad, and none of PyTorch's")),
    "_jit_internal": module(
        "Marks that PyTorch's compiler reads: functions come back as they are.", borrowed("jit", "export ignore is_scripting is_tracing unused _overload _overload_method"),
        functions("fn", "_copy_to_script_wrapper(fn)", "The function itself.")),
    "_tensor_str": module("How tensors are printed.", borrowed("_tensor.text", "PRINT_OPTS set_printoptions _add_suffixes _tensor_str=_numbers")),
    "_inductor": module("PyTorch's generator of kernels, as scripts steer it: switches are kept and change nothing."),
    "_inductor.config": module(
        "Switches of PyTorch's generator of kernels, kept for scripts that set them.",
        values(**dict.fromkeys("conv_1x1_as_mm coordinate_descent_check_all_directions coordinate_descent_tuning debug epilogue_fusion force_fuse_int_mm_with_mul "
                               "fx_graph_cache max_autotune shape_padding use_mixed_mm".split(), False),
               triton=types.SimpleNamespace(unique_kernel_names=False, cudagraphs=False, cudagraph_trees=True),
               cpp=types.SimpleNamespace(threads=-1, simdlen=None)),
        borrowed("compat.definitions", "patch=inductor_patch")),
    "_guards": module("Where PyTorch's compiler is: nowhere.", functions("None", "active_fake_mode() detect_fake_mode(inputs=None)", "None: there are no fake tensors.")),
    "_functorch": module("PyTorch's tracer of gradients for its compiler, as scripts steer it: switches are kept and change nothing."),
    "_functorch.vmap": module("vmap, and what libraries use of its file.", borrowed("func", "vmap"),
                              borrowed("func._vmap", "_add_batch_dim=_to_level _get_name=_name"), borrowed("utils._pytree", "_broadcast_to_and_flatten"),
                              defined("_maybe_remove_batch_dim _validate_and_get_batch_size")),
    "_functorch.config": module("Switches of that tracer, kept for scripts that set them.",
                                values(activation_memory_budget=1.0, donated_buffer=False, enable_autograd_cache=True, functionalize_rng_ops=False),
                                borrowed("compat.definitions", "patch=functorch_patch")),
    "_subclasses": module('PyTorch\'s tensors without data for its compiler, by name: there are none here. Tensors on the device "meta" are without data.',
                          borrowed("_subclasses.fake_tensor", "CrossRefFakeMode FakeTensor FakeTensorMode")),
    "_subclasses.fake_tensor": module("Names of PyTorch's file of this name: asking whether a tensor is fake says no, making one says what to use.",
                                      classes("CrossRefFakeMode FakeTensor FakeTensorMode", _NO_FAKES), functions("False", "is_fake(x)", "Always false."),
                                      values(unset_fake_temporarily=contextlib.nullcontext)),
    "fx": module(
        "PyTorch's graphs of Python programs. tapegrad runs eagerly and records none: names can be imported, using them says so.",
        classes("Graph GraphModule Interpreter Node Proxy Tracer Transformer", _NO_GRAPHS),
        refused("replace_pattern symbolic_trace", _NO_GRAPHS),
        functions("fn_or_name", "wrap(fn_or_name)", "Accepted, as a call or a decorator: functions that a tracer would leave alone."),
        functions("fn", "has_side_effect(fn)", "Accepted: the function itself.")),
    "fx.graph_module": module("What PyTorch keeps in fx/graph_module.py.", borrowed("fx", "GraphModule"), refused("_copy_attr", _NO_GRAPHS)),
    "fx.graph": module("What PyTorch keeps in fx/graph.py.", borrowed("fx", "Graph")),
    "fx.node": module("What PyTorch keeps in fx/node.py.", borrowed("fx", "Node"), values(Target=object, Argument=object), refused("map_arg", _NO_GRAPHS)),
    "fx.proxy": module("What PyTorch keeps in fx/proxy.py.", borrowed("fx", "Proxy TracerBase=Tracer"), classes("GraphAppendingTracer", _NO_GRAPHS)),
    "fx.interpreter": module("What PyTorch keeps in fx/interpreter.py.", borrowed("fx", "Interpreter Transformer")),
    "fx._symbolic_trace": module("What PyTorch keeps in fx/_symbolic_trace.py.", borrowed("fx", "Tracer symbolic_trace wrap"),
                                 functions("False", "is_fx_tracing()", "Always false.")),
    "fx.experimental": module("What PyTorch keeps in fx/experimental."),
    "fx.experimental.proxy_tensor": module("What PyTorch keeps in fx/experimental/proxy_tensor.py.", functions("None", "get_proxy_mode()", "Always None."),
                                           refused("make_fx", _NO_GRAPHS)),
    "fx.experimental.symbolic_shapes": module(
        "What PyTorch keeps in fx/experimental/symbolic_shapes.py. Sizes are numbers here: what is asked of symbols is asked of them.",
        values(guard_or_false=bool, guard_or_true=bool, guard_size_oblivious=bool, statically_known_true=bool, hint_int=int),
        functions("False", "is_symbolic(value)", "Always false."), functions("set()", "free_symbols(value) free_unbacked_symbols(value)", "None."),
        classes("GuardOnDataDependentSymNode", _NO_GRAPHS, bases=(RuntimeError,))),
})

# Programs and models for elsewhere.

_NO_ONNX = "this way of exporting to ONNX is not there\nuse onnx.export, which translates the operators that docs/onnx.md lists"
_NO_ARCHIVES = _hints.NO_ARCHIVES
_NO_LIBRARIES = "libraries that were compiled for PyTorch cannot be loaded"
_NO_EXTENSIONS = ("extensions are written for PyTorch's C++ interface, which is not here\n"
                  "programs in C++ include tapegrad/tapegrad.h; from Python, most extensions have an implementation in tensor operators, too")
_QUANTIZATION = (
    classes("AffineQuantizedObserverBase FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FixedQParamsObserver FusedMovingAvgObsFakeQuantize HistogramObserver "
            "MinMaxObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver "
            "QConfigDynamic QConfigMapping RecordingObserver ReuseInputObserver UniformQuantizationObserverBase", _hints.QUANTISED),
    classes("QConfig BackendConfig BackendPatternConfig DTypeConfig ConvertCustomConfig FuseCustomConfig PrepareCustomConfig", _hints.QUANTISED),
    classes("QuantWrapper", _hints.QUANTISED, bases="nn.Module"),
    refused("add_quant_dequant convert convert_fx convert_to_reference_fx default_eval_fn fuse_conv_bn fuse_conv_bn_relu fuse_fx fuse_known_modules fuse_linear_bn fuse_modules "
            "fuse_modules_qat get_default_qat_qconfig get_default_qat_qconfig_mapping get_default_qconfig get_default_qconfig_mapping get_default_static_quant_module_mappings "
            "get_default_qat_module_mappings get_default_dynamic_quant_module_mappings get_native_backend_config get_fbgemm_backend_config get_qnnpack_backend_config "
            "get_observer_state_dict load_observer_state_dict prepare prepare_fx prepare_qat prepare_qat_fx propagate_qconfig_ quantize quantize_fx quantize_qat swap_module",
            _hints.QUANTISED),
    borrowed("nn._quantized", "quantize_dynamic default_dynamic_qconfig per_channel_dynamic_qconfig"),
    values(**dict.fromkeys("default_qconfig default_debug_qconfig default_per_channel_qconfig default_qat_qconfig default_weight_only_qconfig float16_dynamic_qconfig "
                           "float16_static_qconfig float_qparams_weight_only_qconfig default_observer default_weight_observer default_histogram_observer "
                           "default_per_channel_weight_observer default_dynamic_quant_observer default_placeholder_observer default_fake_quant "
                           "default_weight_fake_quant default_per_channel_weight_fake_quant default_fused_act_fake_quant default_fused_wt_fake_quant".split())),
    values(**dict.fromkeys(("disable_observer", "enable_observer", "disable_fake_quant", "enable_fake_quant"), contextlib.nullcontext)))
_FUSED = ("BNReLU2d BNReLU3d ConvAdd2d ConvAddReLU2d ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d "
          "LinearBn1d LinearLeakyReLU LinearReLU LinearTanh")
_LAYERS = ("BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d DeQuantize Dropout ELU Embedding EmbeddingBag FXFloatFunctional "
           "FloatFunctional GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LSTM LayerNorm LeakyReLU Linear MultiheadAttention PReLU QFunctional "
           "Quantize ReLU6 Sigmoid Softmax")
_WITH_INT8 = (borrowed("nn._quantized", "Linear"),
              classes("Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d GRU GRUCell LSTM LSTMCell RNNCell", _hints.QUANTISED, bases="nn.Module"))

MODULES.update({
    "ao": module("Optimisation of models for production: linear layers with weights of int8, and names of other ways of quantising."),
    "ao.quantization": module(
        "Quantised models: quantize_dynamic works for linear layers. Other names can be imported, using them says so.", *_QUANTIZATION,
        subclasses("QuantStub", "nn.Identity", "A place where a quantised model would take numbers apart: here the identity."),
        subclasses("DeQuantStub", "nn.Identity", "A place where a quantised model would put numbers together: here the identity.")),
    "quantization": SecondPath("ao.quantization"),
    **{f"{place}.{file}": SecondPath("ao.quantization") for place in ("ao.quantization", "quantization") for file in (
        "fake_quantize", "fuse_modules", "observer", "qconfig", "quantization_mappings", "quantize", "quantize_fx", "stubs", "utils")},
    "ao.quantization.backend_config": SecondPath("ao.quantization"), "ao.quantization.qconfig_mapping": SecondPath("ao.quantization"),
    "ao.quantization.fx": module("Quantised graphs of programs, which are not there."),
    "ao.pruning": module("Sparse weights, which nn.utils.prune makes.", classes("BaseScheduler BaseSparsifier WeightNormSparsifier", "use nn.utils.prune")),
    "ao.nn": module("Layers of quantised models."),
    "nn.qat": SecondPath("ao.nn.qat"), "nn.qat.dynamic": SecondPath("ao.nn.qat.dynamic"), "nn.intrinsic": SecondPath("ao.nn.intrinsic"),
    "nn.intrinsic.qat": SecondPath("ao.nn.intrinsic.qat"), "nn.intrinsic.quantized": SecondPath("ao.nn.intrinsic.quantized"),
    "nn.quantizable": SecondPath("ao.nn.quantizable"),
    **{f"{place}.modules": SecondPath(place) for place in ("ao.nn.qat", "ao.nn.qat.dynamic", "ao.nn.intrinsic", "ao.nn.intrinsic.qat", "ao.nn.quantizable")},
    **{f"{place}.modules": SecondPath("ao.nn.quantized") for place in ("ao.nn.quantized", "nn.quantized")}, "nn.qat.modules": SecondPath("ao.nn.qat"),
    **{f"ao.nn.qat.modules.{file}": SecondPath("ao.nn.qat") for file in ("conv", "embedding_ops", "linear")},
    "ao.nn.intrinsic.modules.fused": SecondPath("ao.nn.intrinsic"),
    "ao.nn.qat": module("Layers that are trained as if they were quantised, by name.",
                        classes("Conv1d Conv2d Conv3d Embedding EmbeddingBag Linear", _hints.QUANTISED, bases="nn.{}")),
    "ao.nn.qat.dynamic": module("The same for inputs that are rounded in each call.", classes("Linear", _hints.QUANTISED, bases="nn.{}")),
    "ao.nn.intrinsic": module("Layers in one that PyTorch's quantisation makes, by name.", classes(_FUSED, _hints.QUANTISED, bases="nn.Sequential")),
    "ao.nn.intrinsic.qat": module("The same, trained as if they were quantised.", classes(_FUSED, _hints.QUANTISED, bases="nn.Module"),
                                  refused("freeze_bn_stats update_bn_stats", _hints.QUANTISED)),
    "ao.nn.intrinsic.quantized": module("The same, quantised.", classes(_FUSED, _hints.QUANTISED, bases="nn.Module")),
    "ao.nn.quantizable": module("Layers that PyTorch can quantise, by name.", classes("LSTM LSTMCell MultiheadAttention", _hints.QUANTISED, bases="nn.Module")),
    "ao.nn.quantized": module("Layers of quantised models.", classes(_LAYERS, _hints.QUANTISED, bases="nn.Module")),
    "ao.nn.quantized.functional": module("Functions of quantised tensors, by name.", refused(
        "avg_pool2d conv1d conv2d conv3d interpolate linear max_pool2d relu upsample", _hints.QUANTISED)),
    "ao.nn.quantized.dynamic": module("Layers with int8 weights whose inputs are rounded in each call.", *_WITH_INT8),
    "nn.quantized": SecondPath("ao.nn.quantized"), "nn.quantized.functional": SecondPath("ao.nn.quantized.functional"),
    "nn.quantized.dynamic": SecondPath("ao.nn.quantized.dynamic"),
    "backends.cuda": module(None, borrowed("nn.attention", "SDPBackend")),
    "backends.quantized": module("Engines of quantised layers: there are none.", values(engine="none", supported_engines=["none"])),
    "classes": module("Classes of compiled libraries for PyTorch, of which none can be loaded.", refused("load_library", _NO_LIBRARIES, OSError),
                      values(loaded_libraries=set()), unknown=f"classes: class '{{name}}' is not there: {_NO_LIBRARIES}"),
    "onnx": module(
        None, refused("dynamo_export register_custom_op_symbolic unregister_custom_op_symbolic", _NO_ONNX), borrowed("onnx", "_export=export"),
        functions("False", "is_onnxrt_backend_supported()", "Always false."),
        subclasses("ExportOptions", types.SimpleNamespace, "Options of dynamo_export, kept."),
        enumeration("TrainingMode", {"EVAL": 0, "PRESERVE": 1, "TRAINING": 2}, "The mode that a model would be exported in."),
        enumeration("OperatorExportTypes", {"ONNX": 0, "ONNX_ATEN": 1, "ONNX_ATEN_FALLBACK": 2, "ONNX_FALLTHROUGH": 3}, "How operators would be written."),
        enumeration("TensorProtoDataType", {name: number for number, name in enumerate(
            "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128 BFLOAT16".split())},
            "The dtypes of ONNX by number.")),
    **{f"onnx.{name}": module("Translations of PyTorch's operators one by one: names can be imported, using them says what to do instead.",
                              functions("lambda fn: fn", "parse_args(*arg_descriptors) quantized_args(*arg_q_descriptors, scale=None, zero_point=None)",
                                        "A decorator that gives its function back: it is never called."),
                              refused("_get_const _is_value", _NO_ONNX))
       for name in ("symbolic_helper", *(f"symbolic_opset{version}" for version in range(7, 19)))},
    "package": module("Archives of code and models, which tapegrad neither writes nor reads: a file that holds code would run it.",
                      classes("PackageExporter PackageImporter", _NO_ARCHIVES)),
    "utils.cpp_extension": module(
        "PyTorch's builder of C++ extensions. Extensions written for PyTorch's C++ interface cannot be built: each name says so.",
        refused("load load_inline CppExtension CUDAExtension SyclExtension", _NO_EXTENSIONS), classes("BuildExtension", _NO_EXTENSIONS),
        values(CUDA_HOME=None, ROCM_HOME=None, IS_WINDOWS=False), defined("include_paths is_ninja_available")),
})

# Devices and libraries that are not there. Questions are answered, the rest refuses.


def _device(name: str, title: str) -> Module:
    why = f"{title} are not supported\nuse device='cpu', or ask tapegrad.{name}.is_available() first"
    return module(
        f"{title}, which are not supported: there are none, and using them says so.",
        functions("False", "is_available is_bf16_supported is_built is_current_stream_capturing is_initialized", "False."),
        functions("None", "clear_graph_cache empty_cache manual_seed manual_seed_all reset_peak_memory_stats seed seed_all", "Accepted: there is no such device."),
        functions("0", "current_allocated_memory device_count driver_allocated_memory max_memory_allocated max_memory_reserved memory_allocated memory_reserved "
                       "recommended_max_memory", "0."),
        refused("current_device current_stream get_device_capability get_device_name get_device_properties get_rng_state mem_get_info set_device set_rng_state "
                "set_stream stream synchronize", why, RuntimeError),
        classes("Event Stream device", why, RuntimeError))


MODULES.update({
    "mps": _device("mps", "Apple's GPUs"), "mtia": _device("mtia", "Meta's accelerators"), "xpu": _device("xpu", "Intel's GPUs"),
    "backends.mkl": module("Intel's MKL, which is not used: matrix products are OpenBLAS's and oneDNN's.", functions("False", "is_available()", "False.")),
    "backends.mps": module("Apple's GPUs, which are not supported.",
                           functions("False", "is_available() is_built() is_macos13_or_newer(minor=0) is_macos_or_newer(major, minor)", "False.")),
    "backends.nnpack": module("A library of PyTorch's for convolutions, which is not used.", functions("False", "is_available()", "False."),
                              functions("__import__('contextlib').nullcontext()", "flags(enabled=False)", "A context that changes nothing.")),
    "backends.openmp": module("OpenMP, which only oneDNN uses.", functions("True", "is_available()", "True: oneDNN runs on it.")),
    "backends.opt_einsum": module("The order of contractions in einsum: from left to right.", values(enabled=False, strategy=None),
                                  functions("__import__('contextlib').nullcontext()", "flags(enabled=None, strategy=None)", "A context that changes nothing."),
                                  functions("False", "is_available()", "False.")),
    "numa": module("Names of PyTorch's binding of ranks to memory nodes."),
    "numa.binding": module(
        "How PyTorch's launcher binds ranks to memory nodes: values for programs that prepare them; our launcher does not bind.",
        enumeration("AffinityMode", {"NODE": "node", "SOCKET": "socket", "EXCLUSIVE": "exclusive", "CORE_COMPLEX": "core-complex"},
                    "The cores of a rank: those near its GPU's memory node, socket, a part of a node of its own, or one shared cache.", str),
        dataclass("NumaOptions", [("affinity_mode", object), ("should_fall_back_if_binding_fails", bool, False)],
                  "What `LaunchConfig(numa_options=)` holds. Starting ranks with it raises ValueError.")),
})

# Names of distributed that refuse.

_ONE_FORM = "checkpoints have one form here: a folder that save() and load() know"
_NO_TRACING = "models are not traced: make each stage's module yourself and give it to PipelineStage"
_ONE_STAGE = "several stages on one rank are not supported: use Schedule1F1B or ScheduleGPipe"

MODULES.update({
    "distributed.checkpoint": module(
        None, refused("_load_state_dict dcp_to_torch_save load_sharded_optimizer_state_dict torch_save_to_dcp", _ONE_FORM),
        classes("HuggingFaceStorageReader HuggingFaceStorageWriter LoadPlanner SavePlanner StorageReader StorageWriter _EmptyStateDictLoadPlanner", _ONE_FORM)),
    "distributed.pipelining": module(
        None, classes("Pipe", _NO_TRACING), refused("build_stage pipeline", _NO_TRACING),
        classes("ScheduleDualPipeV ScheduleInterleaved1F1B ScheduleInterleavedZeroBubble ScheduleLoopedBFS ScheduleZBVZeroBubble", _ONE_STAGE)),
    "distributed.tensor.experimental": module(None, refused("context_parallel", "attention over a sequence that ranks share is not there yet")),
})

# PyTorch's second, older or private paths of what the library has.

_NO_PIPES = "the loader asks chains themselves: call set_shuffle and apply_sharding of their steps"
_NO_FILE_PIPES = "chains over files are not there\nuse a Dataset that reads them, or map() with a function that does"
_ITER_PIPES = ("Batcher Collator Concater Demultiplexer Filter Forker Grouper IterableWrapper Mapper Multiplexer Sampler ShardingFilter Shuffler UnBatcher Zipper")

MODULES.update({
    "_six": module(
        "`torch._six`, which PyTorch dropped in 2.0: what scripts from before still import from it.",
        values(PY2=False, PY3=True, PY37=True, container_abcs=collections.abc, inf=math.inf, nan=math.nan, string_classes=(str, bytes), int_classes=int,
               FileNotFoundError=FileNotFoundError, get_function_from_type=getattr, with_metaclass=type),
        functions("isinstance(obj, tuple)", "istuple(obj)", "Whether an object is a tuple.")),
    "autograd": module(None, functions("True", "kineto_available()", "True: profiles have the events of operators."),
                       borrowed("autograd.graph", "SavedTensor"), borrowed("autograd.grad_mode", "is_multithreading_enabled set_multithreading_enabled"), defined("_calculate_shape")),
    "autograd._functions": module("Functions of PyTorch's file of this name.", defined("Resize")),
    "autograd.profiler_util": module("Events of profiles under the module name that scripts import them from.",
                                     borrowed("profiler._events", "EventList FunctionEvent FunctionEventAvg Interval"), defined("_format_time")),
    "cpu.amp.autocast_mode": module("The autocast of this device type.", borrowed("cpu.amp", "autocast")),
    "cpu.amp.grad_scaler": module("The GradScaler of this device type.", borrowed("cpu.amp", "GradScaler"), borrowed("amp.grad_scaler", "OptState")),
    "cuda.amp.autocast_mode": module("The autocast of this device type.", borrowed("cuda.amp", "autocast custom_bwd custom_fwd")),
    "cuda.amp.common": module("Whether mixed precision on GPUs is out of the question.", defined("amp_definitely_not_available")),
    "cuda.amp.grad_scaler": module("The GradScaler of this device type.", borrowed("cuda.amp", "GradScaler"), borrowed("amp.grad_scaler", "OptState")),
    "distributed._composable.fsdp": SecondPath("distributed.fsdp"),
    "distributed._tensor": SecondPath("distributed.tensor"),
    "distributed._tensor.device_mesh": SecondPath("distributed.device_mesh"),
    "distributed._tensor.experimental": SecondPath("distributed.tensor.experimental"),
    "distributed._tensor.placement_types": SecondPath("distributed.tensor.placement_types"),
    "distributed.algorithms.ddp_comm_hooks.default": SecondPath("distributed.algorithms.ddp_comm_hooks.default_hooks"),
    **{f"distributed.checkpoint.{name}": SecondPath("distributed.checkpoint") for name in (
        "api", "default_planner", "filesystem", "format_utils", "hf_storage", "optimizer", "state_dict_loader", "state_dict_saver", "stateful")},
    "distributed.fsdp.api": SecondPath("distributed.fsdp._api"),
    "distributed.tensor._utils": module("Shapes and places of parts, by PyTorch's path.",
                                        borrowed("distributed.tensor._spec", "compute_local_shape_and_global_offset")),
    "distributed.tensor.placement_types": module("The kinds of placement by PyTorch's path.",
                                                 borrowed("distributed._placements", "Partial Placement Replicate Shard _StridedShard")),
    "distributions.kl": module(None, borrowed("distributions._kl_pairs", "_kl_expfamily_expfamily=_exponential_family")),
    "_utils_internal": module("Where files are, by PyTorch's path.", functions("__import__('os').path.join(*parts)", "get_file_path(*parts) get_file_path_2(*parts)", "The path of these parts.")),
    "functional": module(
        "Functions of the root module, by the path under which PyTorch also has them.",
        borrowed("", "atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum istft lu meshgrid norm "
                     "split stft tensordot unique unique_consecutive unravel_index")),
    "nn._reduction": module("How a loss is reduced, by PyTorch's old arguments.", defined("get_enum legacy_get_enum legacy_get_string")),
    "nn.parallel._functions": module("What DataParallel is made of in PyTorch; here it is not made of functions.",
                                     classes("Broadcast Gather ReduceAddCoalesced Scatter", "use nn.parallel.scatter, gather and replicate")),
    "optim.adamw": module("AdamW by its own path.", borrowed("optim.adam", "AdamW")),
    "profiler.itt": module("Intel's tracing, which is not used.", functions("False", "is_available()", "False."),
                           refused("mark range range_pop range_push", "Intel's tracing is not used: see profiler.profile", RuntimeError)),
    "utils._device": module("The device of a `with device(...)` block, by PyTorch's path.", defined("DeviceContext set_device")),
    "utils._triton": module("What libraries ask before they write kernels for Triton.",
                            functions("False", "has_triton() has_triton_package() has_triton_tma() has_triton_tma_device() has_triton_tensor_descriptor_host_tma() "
                                               "has_triton_experimental_host_tma() has_triton_stable_tma_api()", "Always false.")),
    "utils._mode_utils": module("Running without dispatch modes, by PyTorch's path.", borrowed("utils._python_dispatch", "no_dispatch=_disable_current_modes")),
    "utils.checkpoint": module(
        None, enumeration("CheckpointPolicy", {"MUST_SAVE": 0, "PREFER_SAVE": 1, "MUST_RECOMPUTE": 2, "PREFER_RECOMPUTE": 3, "MUST_CPU_OFFLOAD": 4},
                          "What a policy of selective checkpointing answers."),
        refused("create_selective_checkpoint_contexts", "a checkpointed function is computed again as a whole"),
        classes("SelectiveCheckpointContext _CachedTorchDispatchMode _CachingTorchDispatchMode", "a checkpointed function is computed again as a whole")),
    "utils.data": module(None, borrowed("utils.data.pipes", "DataChunk IterDataPipe MapDataPipe functional_datapipe")),
    "utils.data._utils": module(None, values(MP_STATUS_CHECK_INTERVAL=5.0, HAS_NUMPY=True, IS_WINDOWS=False, python_exit_status=False)),
    "utils.data._utils.signal_handling": module("Signals of workers, which our loader sees to.", functions(
        "None", "_remove_worker_pids(loader_id) _set_SIGCHLD_handler() _set_worker_pids(loader_id, pids) _set_worker_signal_handlers()", "Accepted.")),
    "utils.data.datapipes": module("Chains over data sets, which PyTorch keeps for old programs.", borrowed("utils.data.pipes", "functional_datapipe")),
    "utils.data.datapipes.datapipe": module("Their bases.", borrowed("utils.data.pipes", "DataChunk IterDataPipe MapDataPipe")),
    "utils.data.datapipes._decorator": module("What makes a class a step of them.", borrowed("utils.data.pipes", "functional_datapipe")),
    "utils.data.datapipes.iter": module("Chains that are gone through.", borrowed("utils.data.pipes", " ".join(f"{n}={n}IterDataPipe" for n in _ITER_PIPES.split())),
                                        classes("FileLister FileOpener RoutedDecoder StreamReader", _NO_FILE_PIPES)),
    **{f"utils.data.datapipes.iter.{file}": module(f"Those of PyTorch's file {file}.py.", borrowed("utils.data.pipes", " ".join(
        f"{n}IterDataPipe" for n in _ITER_PIPES.split()))) for file in ("callable", "combinatorics", "combining", "grouping", "selecting", "utils")},
    "utils.data.datapipes.map": module("Chains with places.", borrowed("utils.data.pipes", " ".join(
        f"{n}={n}MapDataPipe" for n in "Batcher Concater Mapper SequenceWrapper Shuffler Zipper".split()))),
    "utils.data.graph_settings": module("Settings of such chains.", refused("apply_random_seed apply_sharding apply_shuffle_settings", _NO_PIPES)),
    "utils.data._utils.fetch": module("How batches are made.", borrowed("utils.data.fetch", "Fetcher")),
    "utils.data._utils.worker": module("Which worker this is.", borrowed("utils.data.worker", "WorkerInfo get_worker_info"), defined("_generate_state"),
                                         values(MP_STATUS_CHECK_INTERVAL=5.0, HAS_NUMPY=True, IS_WINDOWS=False)),
    "_ops": module("Operators by PyTorch's path.", borrowed("ops", "OpOverload=Overload OpOverloadPacket=_Form _OpNamespace=_Namespace"),
                   classes("HigherOrderOperator", "operators that take functions are functions here: cond, while_loop, scan, map")),
    "func": module(None, borrowed("func._stateless", "FunctionalModule FunctionalModuleWithBuffers combine_state_for_ensemble make_functional "
                                                     "make_functional_with_buffers")),
    "_functorch.make_functional": SecondPath("func._stateless"),
    "_functorch.apis": module("Transforms, by PyTorch's path.", borrowed("func", "grad grad_and_value vmap")),
    "_functorch.eager_transforms": module("Transforms, by PyTorch's path.", borrowed("func", "functionalize hessian jacfwd jacrev jvp linearize vjp")),
    "_vmap_internals": module("vmap, by its oldest path.", borrowed("func", "vmap")),
    "_lowrank": module("Decompositions of low rank, by PyTorch's path.", borrowed("", "pca_lowrank svd_lowrank")),
    "serialization": module(None, values(DEFAULT_PROTOCOL=2, INT_SIZE=4, IS_WINDOWS=False, LONG_SIZE=8, SHORT_SIZE=2, STORAGE_KEY_SEPARATOR=",")),
    "utils.dlpack": module("Tensors of other libraries over the same memory.", borrowed("", "from_dlpack to_dlpack")),
    "utils.model_zoo": module("Files of weights from the network, under their old name.", borrowed("hub", "load_url=load_state_dict_from_url")),
})
