// Operators that users write in Python: their schemas, so that ORT loads models that use them.
//
// ORT asks the factory for them. Running is not done here: the provider claims such a node like any
// other. Where it was left to ORT's CPU provider, the kernel made here says what is missing.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ort.h"
#include "python.h"

namespace ort_mlx {

struct CustomOpSchema {
  std::string domain;
  std::string name;
  int since_version;
  size_t required_inputs;
  size_t optional_inputs;
  bool has_variadic_input;
  size_t outputs;
};

class CustomOp : public OrtCustomOp {
 public:
  // `infer` gives the type and dimensions of each output, from those of the inputs.
  CustomOp(const Runtime& ort, CustomOpSchema schema, std::shared_ptr<const PyRef> infer);

 private:
  size_t input_count() const;
  int characteristic(size_t input) const;
  void infer_outputs(OrtShapeInferContext* context) const;

  const Runtime& ort_;
  const CustomOpSchema schema_;
  std::shared_ptr<const PyRef> infer_;
};

// Every operator registered in this process. Nothing is ever removed: ORT keeps pointers.
class CustomOps {
 public:
  static CustomOps& instance();

  void add(CustomOpSchema schema, nb::object infer);
  size_t domain_count();
  // The domains as one ORT knows them, with every operator added so far.
  void fill(const Runtime& ort, OrtCustomOpDomain** domains, size_t count);

 private:
  struct Entry {
    CustomOpSchema schema;
    std::shared_ptr<const PyRef> infer;
  };
  struct Made {
    size_t operators;
    OrtCustomOpDomain* domain;
  };

  std::mutex mutex_;
  std::map<std::string, std::vector<Entry>> by_domain_;
  std::map<std::pair<const OrtApi*, std::string>, Made> made_;
};

}  // namespace ort_mlx
