// The part of ONNX Runtime's C ABI that this library uses, declared by slot.
//
// ORT ships no headers in any package. Its API tables are plain arrays of function pointers, and
// no slot has ever moved, so a slot number and a signature say everything. `since` below is the
// first ORT 1.x release that has the slot; a slot without a mark exists in every supported one.
#pragma once

#include <cstddef>
#include <cstdint>

// Handles that only ORT looks into.
struct OrtApi;
struct OrtEpApi;
struct OrtStatus;
struct OrtLogger;
struct OrtGraph;
struct OrtNode;
struct OrtOpAttr;
struct OrtValue;
struct OrtValueInfo;
struct OrtTypeInfo;
struct OrtTensorTypeAndShapeInfo;
struct OrtModelMetadata;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtKeyValuePairs;
struct OrtHardwareDevice;
struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtKernelContext;
struct OrtNodeComputeContext;
struct OrtAllocator;
struct OrtMemoryInfo;
struct OrtDataTransferImpl;
struct OrtCustomOp;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtShapeInferContext;

namespace ort_mlx {

// The oldest ORT 1.x release that works, and the release whose struct layouts are declared below.
inline constexpr uint32_t kMinimumOrt = 24;
inline constexpr uint32_t kDeclaredOrt = 29;

enum ErrorCode : int {
  kFail = 1,
  kInvalidArgument = 2,
  kRuntimeException = 6,
  kNotImplemented = 9,
  kInvalidGraph = 10,
};

enum HardwareType : int { kHardwareCpu = 0, kHardwareGpu = 1, kHardwareNpu = 2 };
enum LogLevel : int { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3 };
enum OnnxType : int { kOnnxTensor = 1 };

enum AttributeType : int {
  kAttrInt = 1,
  kAttrInts = 2,
  kAttrFloat = 3,
  kAttrFloats = 4,
  kAttrString = 5,
  kAttrStrings = 6,
  kAttrGraph = 7,
  kAttrTensor = 8,
};

// One function of an ORT table: the table's type, the slot and the signature.
template <class Table, size_t Slot, class Signature>
struct Fn;

template <class Table, size_t Slot, class R, class... Args>
struct Fn<Table, Slot, R(Args...)> {
  R operator()(const Table* table, Args... args) const {
    auto* slots = reinterpret_cast<void* const*>(table);
    return reinterpret_cast<R (*)(Args...)>(slots[Slot])(args...);
  }
};

template <size_t Slot, class Signature>
using ApiFn = Fn<OrtApi, Slot, Signature>;
template <size_t Slot, class Signature>
using EpFn = Fn<OrtEpApi, Slot, Signature>;

namespace api {
using S = OrtStatus*;
using Info = const OrtTensorTypeAndShapeInfo*;

inline constexpr ApiFn<0, S(int, const char*)> CreateStatus;
inline constexpr ApiFn<1, int(const OrtStatus*)> GetErrorCode;
inline constexpr ApiFn<2, const char*(const OrtStatus*)> GetErrorMessage;
inline constexpr ApiFn<26, S(const char*, OrtCustomOpDomain**)> CreateCustomOpDomain;
inline constexpr ApiFn<27, S(OrtCustomOpDomain*, const OrtCustomOp*)> CustomOpDomain_Add;
inline constexpr ApiFn<51, S(OrtValue*, void**)> GetTensorMutableData;
inline constexpr ApiFn<55, S(const OrtTypeInfo*, Info*)> CastTypeInfoToTensorInfo;
inline constexpr ApiFn<56, S(const OrtTypeInfo*, int*)> GetOnnxTypeFromTypeInfo;
inline constexpr ApiFn<57, S(OrtTensorTypeAndShapeInfo**)> CreateTensorTypeAndShapeInfo;
inline constexpr ApiFn<58, S(OrtTensorTypeAndShapeInfo*, int)> SetTensorElementType;
inline constexpr ApiFn<59, S(OrtTensorTypeAndShapeInfo*, const int64_t*, size_t)> SetDimensions;
inline constexpr ApiFn<60, S(Info, int*)> GetTensorElementType;
inline constexpr ApiFn<61, S(Info, size_t*)> GetDimensionsCount;
inline constexpr ApiFn<62, S(Info, int64_t*, size_t)> GetDimensions;
inline constexpr ApiFn<63, S(Info, const char**, size_t)> GetSymbolicDimensions;
inline constexpr ApiFn<76, S(OrtAllocator*, void*)> AllocatorFree;
inline constexpr ApiFn<78, S(OrtAllocator**)> GetAllocatorWithDefaultOptions;
inline constexpr ApiFn<88, S(const OrtKernelContext*, size_t*)> KernelContext_GetInputCount;
inline constexpr ApiFn<90, S(const OrtKernelContext*, size_t, const OrtValue**)>
    KernelContext_GetInput;
inline constexpr ApiFn<91, S(OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**)>
    KernelContext_GetOutput;
inline constexpr ApiFn<93, void(OrtStatus*)> ReleaseStatus;
inline constexpr ApiFn<96, void(OrtValue*)> ReleaseValue;
inline constexpr ApiFn<99, void(OrtTensorTypeAndShapeInfo*)> ReleaseTensorTypeAndShapeInfo;
inline constexpr ApiFn<116, S(const OrtModelMetadata*, OrtAllocator*, const char*, char**)>
    ModelMetadataLookupCustomMetadataMap;
inline constexpr ApiFn<118, void(OrtModelMetadata*)> ReleaseModelMetadata;
inline constexpr ApiFn<123, S(const OrtModelMetadata*, OrtAllocator*, char***, int64_t*)>
    ModelMetadataGetCustomMetadataMapKeys;
inline constexpr ApiFn<247, S(const OrtLogger*, int, const char*, const char*, int, const char*)>
    Logger_LogMessage;
inline constexpr ApiFn<248, S(const OrtLogger*, int*)> Logger_GetLoggingSeverityLevel;
inline constexpr ApiFn<267, S(const OrtShapeInferContext*, size_t*)>
    ShapeInferContext_GetInputCount;
inline constexpr ApiFn<268, S(const OrtShapeInferContext*, size_t, OrtTensorTypeAndShapeInfo**)>
    ShapeInferContext_GetInputTypeShape;
inline constexpr ApiFn<269, S(const OrtShapeInferContext*, const char*, const OrtOpAttr**)>
    ShapeInferContext_GetAttribute;
inline constexpr ApiFn<270, S(const OrtShapeInferContext*, size_t, Info)>
    ShapeInferContext_SetOutputTypeShape;
inline constexpr ApiFn<271, S(OrtTensorTypeAndShapeInfo*, const char**, size_t)>
    SetSymbolicDimensions;
inline constexpr ApiFn<272, S(const OrtOpAttr*, int, void*, size_t, size_t*)> ReadOpAttr;
inline constexpr ApiFn<289, S(const OrtValueInfo*, const char**)> GetValueInfoName;
inline constexpr ApiFn<290, S(const OrtValueInfo*, const OrtTypeInfo**)> GetValueInfoTypeInfo;
inline constexpr ApiFn<295, void(OrtKeyValuePairs**)> CreateKeyValuePairs;
inline constexpr ApiFn<296, void(OrtKeyValuePairs*, const char*, const char*)> AddKeyValuePair;
inline constexpr ApiFn<298, void(const OrtKeyValuePairs*, const char* const**, const char* const**,
                                 size_t*)>
    GetKeyValuePairs;
inline constexpr ApiFn<300, void(OrtKeyValuePairs*)> ReleaseKeyValuePairs;
inline constexpr ApiFn<307, int(const OrtHardwareDevice*)> HardwareDevice_Type;
inline constexpr ApiFn<317, const OrtEpApi*()> GetEpApi;
inline constexpr ApiFn<326, S(const OrtValueInfo*, const OrtValue**)> ValueInfo_GetInitializerValue;
inline constexpr ApiFn<331, S(const OrtValueInfo*, bool*)> ValueInfo_IsConstantInitializer;
inline constexpr ApiFn<338, S(const OrtGraph*, size_t*)> Graph_GetNumInputs;
inline constexpr ApiFn<339, S(const OrtGraph*, const OrtValueInfo**, size_t)> Graph_GetInputs;
inline constexpr ApiFn<340, S(const OrtGraph*, size_t*)> Graph_GetNumOutputs;
inline constexpr ApiFn<341, S(const OrtGraph*, const OrtValueInfo**, size_t)> Graph_GetOutputs;
inline constexpr ApiFn<344, S(const OrtGraph*, size_t*)> Graph_GetNumNodes;
inline constexpr ApiFn<345, S(const OrtGraph*, const OrtNode**, size_t)> Graph_GetNodes;
inline constexpr ApiFn<346, S(const OrtGraph*, const OrtNode**)> Graph_GetParentNode;
inline constexpr ApiFn<349, S(const OrtNode*, const char**)> Node_GetName;
inline constexpr ApiFn<350, S(const OrtNode*, const char**)> Node_GetOperatorType;
inline constexpr ApiFn<351, S(const OrtNode*, const char**)> Node_GetDomain;
inline constexpr ApiFn<352, S(const OrtNode*, int*)> Node_GetSinceVersion;
inline constexpr ApiFn<353, S(const OrtNode*, size_t*)> Node_GetNumInputs;
inline constexpr ApiFn<354, S(const OrtNode*, const OrtValueInfo**, size_t)> Node_GetInputs;
inline constexpr ApiFn<355, S(const OrtNode*, size_t*)> Node_GetNumOutputs;
inline constexpr ApiFn<356, S(const OrtNode*, const OrtValueInfo**, size_t)> Node_GetOutputs;
inline constexpr ApiFn<357, S(const OrtNode*, size_t*)> Node_GetNumImplicitInputs;
inline constexpr ApiFn<358, S(const OrtNode*, const OrtValueInfo**, size_t)> Node_GetImplicitInputs;
inline constexpr ApiFn<359, S(const OrtNode*, size_t*)> Node_GetNumAttributes;
inline constexpr ApiFn<360, S(const OrtNode*, const OrtOpAttr**, size_t)> Node_GetAttributes;
inline constexpr ApiFn<362, S(const OrtOpAttr*, OrtValue**)> OpAttr_GetTensorAttributeAsOrtValue;
inline constexpr ApiFn<363, S(const OrtOpAttr*, int*)> OpAttr_GetType;
inline constexpr ApiFn<364, S(const OrtOpAttr*, const char**)> OpAttr_GetName;
inline constexpr ApiFn<365, S(const OrtNode*, size_t*)> Node_GetNumSubgraphs;
inline constexpr ApiFn<366, S(const OrtNode*, const OrtGraph**, size_t, const char**)>
    Node_GetSubgraphs;
inline constexpr ApiFn<367, S(const OrtNode*, const OrtGraph**)> Node_GetGraph;
inline constexpr ApiFn<378, S(const OrtValue*, const void**)> GetTensorData;
inline constexpr ApiFn<379, S(const OrtSessionOptions*, OrtKeyValuePairs**)>
    GetSessionOptionsConfigEntries;
inline constexpr ApiFn<387, S(const OrtGraph*, OrtModelMetadata**)> Graph_GetModelMetadata;
inline constexpr ApiFn<390, bool(Info)> TensorTypeAndShape_HasShape;  // since 1.24
inline constexpr ApiFn<414, S(const OrtValue*, int*, const int64_t**, size_t*)>
    GetTensorElementTypeAndShapeDataReference;  // since 1.24
}  // namespace api
}  // namespace ort_mlx

// Structs this library fills, or reads through, as ORT lays them out. ORT passes `this_ptr` back as
// the struct's address, so each is the first base of the class that implements it. They must be
// value-initialised: ORT reads every pointer that `version` covers.
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct OrtEpFactory;
struct OrtEp;
struct OrtNodeComputeInfo;
struct OrtSyncStreamImpl;
struct OrtMemoryDevice;

struct OrtNodeFusionOptions {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;
};

struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEpFactory*);
  const char* (*GetVendor)(const OrtEpFactory*);
  OrtStatus* (*GetSupportedDevices)(OrtEpFactory*, const OrtHardwareDevice* const*, size_t,
                                    OrtEpDevice**, size_t, size_t*);
  OrtStatus* (*CreateEp)(OrtEpFactory*, const OrtHardwareDevice* const*,
                         const OrtKeyValuePairs* const*, size_t, const OrtSessionOptions*,
                         const OrtLogger*, OrtEp**);
  void (*ReleaseEp)(OrtEpFactory*, OrtEp*);
  uint32_t (*GetVendorId)(const OrtEpFactory*);
  const char* (*GetVersion)(const OrtEpFactory*);
  void* ValidateCompiledModelCompatibilityInfo;
  OrtStatus* (*CreateAllocator)(OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                OrtAllocator**);
  void (*ReleaseAllocator)(OrtEpFactory*, OrtAllocator*);
  OrtStatus* (*CreateDataTransfer)(OrtEpFactory*, OrtDataTransferImpl**);
  bool (*IsStreamAware)(const OrtEpFactory*);
  void* CreateSyncStreamForDevice;
  void* GetHardwareDeviceIncompatibilityDetails;
  void* CreateExternalResourceImporterForDevice;
  OrtStatus* (*GetNumCustomOpDomains)(OrtEpFactory*, size_t*);
  OrtStatus* (*GetCustomOpDomains)(OrtEpFactory*, OrtCustomOpDomain**, size_t);
  void* unused_18_to_20[3];
};
static_assert(sizeof(OrtEpFactory) == 168);

struct OrtEp {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEp*);
  OrtStatus* (*GetCapability)(OrtEp*, const OrtGraph*, OrtEpGraphSupportInfo*);
  OrtStatus* (*Compile)(OrtEp*, const OrtGraph**, const OrtNode**, size_t, OrtNodeComputeInfo**,
                        OrtNode**);
  void (*ReleaseNodeComputeInfos)(OrtEp*, OrtNodeComputeInfo**, size_t);
  void* GetPreferredDataLayout;
  void* ShouldConvertDataLayoutForOp;
  OrtStatus* (*SetDynamicOptions)(OrtEp*, const char* const*, const char* const*, size_t);
  OrtStatus* (*OnRunStart)(OrtEp*, const OrtRunOptions*);
  OrtStatus* (*OnRunEnd)(OrtEp*, const OrtRunOptions*, bool);
  void* CreateAllocator;
  void* CreateSyncStreamForDevice;
  void* GetCompiledModelCompatibilityInfo;
  void* GetKernelRegistry;
  OrtStatus* (*IsConcurrentRunSupported)(OrtEp*, bool*);
  void* unused_15_to_25[11];
};
static_assert(sizeof(OrtEp) == 208);

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus* (*CreateState)(OrtNodeComputeInfo*, OrtNodeComputeContext*, void**);
  OrtStatus* (*Compute)(OrtNodeComputeInfo*, void*, OrtKernelContext*);
  void (*ReleaseState)(OrtNodeComputeInfo*, void*);
};
static_assert(sizeof(OrtNodeComputeInfo) == 32);

struct OrtCustomOp {
  uint32_t version;
  void* CreateKernel;
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void* KernelCompute;
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  void* unused_22_to_25[4];
};
static_assert(sizeof(OrtCustomOp) == 208);

namespace ort_mlx::ep_api {
using S = OrtStatus*;
inline constexpr EpFn<0, S(OrtEpFactory*, const OrtHardwareDevice*, const OrtKeyValuePairs*,
                           const OrtKeyValuePairs*, OrtEpDevice**)>
    CreateEpDevice;
inline constexpr EpFn<2, S(OrtEpGraphSupportInfo*, const OrtNode* const*, size_t,
                           const OrtNodeFusionOptions*)>
    EpGraphSupportInfo_AddNodesToFuse;
}  // namespace ort_mlx::ep_api
