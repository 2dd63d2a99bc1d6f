#include "execute.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/scheduler.h>
#include <mlx/transforms.h>

#include <memory>
#include <semaphore>
#include <utility>

#include "../borrowed.h"
#include "../stopping.h"
#include "../streams.h"
#include "fusion.h"
#include "lowering.h"

namespace ort_mlx::cpu {

namespace {

// How far scheduling runs ahead of the stream: a few batches, so that a Run soon stops when asked.
constexpr int kBatch = 10;
constexpr int kBatchesAhead = 4;

// Counted here and not by MLX's scheduler, whose count is of every thread, and too high after tasks
// of anybody's have failed (see streams.cpp).
class Lead {
 public:
  explicit Lead(mx::Stream stream) : stream_(stream) {}

  void scheduled_one() {
    if (++count_ % kBatch != 0) return;
    free_->acquire();
    mx::scheduler::enqueue(stream_, [free = free_] { free->release(); });
  }

 private:
  const mx::Stream stream_;
  int count_ = 0;
  std::shared_ptr<std::counting_semaphore<>> free_ =
      std::make_shared<std::counting_semaphore<>>(kBatchesAhead);
};

// Schedules a primitive of MLX on its stream, as MLX's own evaluation does.
void schedule(mx::Primitive& primitive, const std::vector<mx::array>& inputs,
              std::vector<mx::array>& outputs) {
  primitive.eval_cpu(inputs, outputs);
  std::vector<std::shared_ptr<mx::array::Data>> held;
  for (const auto& a : inputs) held.push_back(a.data_shared_ptr());
  for (const auto& a : outputs) held.push_back(a.data_shared_ptr());
  auto& encoder = mx::cpu::get_command_encoder(primitive.stream());
  encoder.dispatch([held = std::move(held), temporaries = std::move(encoder.temporaries())] {});
  encoder.temporaries().clear();
}

}  // namespace

std::shared_ptr<const Program> Program::prepare(const Tape& tape,
                                                const std::vector<mx::array>& inputs, int threads) {
  if (tape.nodes.empty()) return nullptr;
  const mx::Stream stream = tape.nodes[0].primitive->stream();
  for (const auto& node : tape.nodes) {
    if (node.primitive->stream() != stream || stream.device != mx::Device::cpu) return nullptr;
  }
  auto program =
      std::shared_ptr<Program>(new Program(fuse(tape, inputs, threads), stream, threads));
  const Tape& made = program->tape_;
  program->steps_.resize(made.nodes.size());
  std::vector<bool> is_read_later(made.value_count);
  for (uint32_t id : made.outputs) is_read_later[id] = true;
  // Constants are never given away.
  for (size_t i = 0; i < made.constants.size(); ++i) is_read_later[made.input_count + i] = true;
  for (size_t i = made.nodes.size(); i-- > 0;) {
    const auto& node = made.nodes[i];
    Step& step = program->steps_[i];
    step.kernel = dynamic_cast<CpuKernel*>(node.primitive.get());
    step.is_last.resize(node.inputs.size());
    for (size_t k = node.inputs.size(); k-- > 0;) {
      step.is_last[k] = !is_read_later[node.inputs[k]];
      is_read_later[node.inputs[k]] = true;
    }
  }
  return program;
}

// The state of one run.
class Program::Run {
 public:
  explicit Run(const Program& program) : program_(program), lead_(program.stream_) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (is_pending_) settle(program_.stream_);  // it may be reading the caller's inputs
  }

  void call(const std::shared_ptr<mx::Primitive>& primitive, CpuKernel* kernel,
            const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) {
    if (kernel == nullptr) {
      is_pending_ = true;
      schedule(*primitive, inputs, outputs);
      for (auto& made : outputs) made.detach();
      lead_.scheduled_one();
    } else {
      if (is_pending_ && kernel->reads(inputs)) wait();
      kernel->run(inputs, outputs);
    }
    for (auto& made : outputs) made.set_status(mx::array::Status::available);
  }

  // Computes arrays that a growing node made of computed ones.
  void evaluate(std::vector<mx::array>& arrays) {
    for (auto& a : arrays) evaluate(a);
  }

  void wait() {
    if (is_pending_) mx::synchronize(program_.stream_);
    is_pending_ = false;
  }

 private:
  void evaluate(mx::array& a) {
    if (a.status() != mx::array::Status::unscheduled) return;
    std::vector<mx::array> inputs = a.inputs();
    evaluate(inputs);
    std::vector<Value> values;
    for (const auto& in : inputs) values.push_back({in.shape(), in.dtype()});
    const auto own = a.primitive_ptr();
    const Value output{a.shape(), a.dtype()};
    const auto better = lower({own, values, output}, program_.threads_);
    auto outputs = a.outputs();
    call(better, dynamic_cast<CpuKernel*>(better.get()), inputs, outputs);
    a.detach();
  }

  const Program& program_;
  Lead lead_;
  bool is_pending_ = false;  // whether the stream may still be working
};

std::vector<mx::array> Program::run(std::vector<mx::array> values, int64_t step_number,
                                    const std::vector<void*>& targets) const {
  Run run(*this);
  values.reserve(tape_.value_count);
  values.insert(values.end(), tape_.constants.begin(), tape_.constants.end());
  for (const auto& constant : tape_.growing_constants) {
    mx::array at = constant.at(step_number);
    mx::eval(at);
    values[tape_.input_count + constant.index] = std::move(at);
  }
  std::vector<mx::array> inputs, outputs;
  for (size_t i = 0; i < steps_.size(); ++i) {
    check_stopped();
    const auto& node = tape_.nodes[i];
    const Step& step = steps_[i];
    inputs.clear();
    outputs.clear();
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      mx::array& value = values[node.inputs[k]];
      if (step.is_last[k]) {
        inputs.push_back(std::move(value));
      } else {
        inputs.push_back(value);
      }
    }
    if (node.growth != nullptr && node.growth->rebuild) {
      outputs = node.growth->rebuild(inputs, step_number);
      run.evaluate(outputs);
    } else {
      for (size_t k = 0; k < node.shapes.size(); ++k) {
        // MLX's primitives look up their stream in the output.
        outputs.emplace_back(
            node.growth == nullptr ? node.shapes[k] : shape_at(node.growth->shapes[k], step_number),
            node.dtypes[k], step.kernel == nullptr ? node.primitive : nullptr,
            std::vector<mx::array>{});
        const int32_t target = targets.empty() ? -1 : placing_.target(i, k);
        if (target >= 0 && targets[target] != nullptr) {
          borrow(outputs.back(), targets[target]);
        }
      }
      run.call(node.primitive, step.kernel, inputs, outputs);
    }
    for (auto& made : outputs) values.push_back(std::move(made));
  }
  run.wait();
  std::vector<mx::array> results;
  results.reserve(tape_.outputs.size());
  for (uint32_t id : tape_.outputs) results.push_back(values[id]);
  return results;
}

}  // namespace ort_mlx::cpu
