// Everything a program needs: tensors and operators, the tape, modules and layers, optimizers, data.
//
//   #include <tapegrad/tapegrad.h>
//   namespace tg = tapegrad;
//
//   tg::nn::Sequential model(tg::nn::Linear(2, 8), tg::nn::ReLU(), tg::nn::Linear(8, 1));
//   tg::optim::Adam optimizer(model->parameters());
//   tg::Tensor loss = tg::mse_loss(model(x), y);
//   loss.backward();
//   optimizer.step();
#pragma once

#include "tapegrad/aten/create/from_blob.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/index/subscript.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/function.h"
#include "tapegrad/autograd/gradcheck.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/c10/random/generator.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/nn/containers.h"
#include "tapegrad/nn/data/mnist.h"
#include "tapegrad/nn/files/files.h"
#include "tapegrad/nn/init.h"
#include "tapegrad/nn/layers.h"
#include "tapegrad/nn/layers/attention.h"
#include "tapegrad/nn/layers/handwritten_layers.h"
#include "tapegrad/nn/layers/recurrent.h"
#include "tapegrad/nn/layers/transformer.h"
#include "tapegrad/nn/lazy.h"
#include "tapegrad/nn/optim/cycles.h"
#include "tapegrad/nn/optim/optimizers.h"
#include "tapegrad/nn/optim/schedules.h"
#include "tapegrad/nn/record.h"
#include "tapegrad/nn/sequential.h"
#include "tapegrad/nn/utils/clip_grad.h"
#include "tapegrad/nn/utils/convert_parameters.h"
#include "tapegrad/nn/utils/rnn.h"
