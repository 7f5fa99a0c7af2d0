#include "engine/compatibility.h"

#include "base/error.h"
#include "engine/device.h"

namespace ridge {

std::vector<Combination> compatibility_table() {
  std::vector<Combination> table;
  for (const std::string& device : known_devices())
    for (const FormatId activations : {FormatId::f32, FormatId::i16, FormatId::i8})
      for (const FormatId kv : {FormatId::f32, FormatId::f16, FormatId::bf16, FormatId::fp8_e4m3}) {
        Combination c{device, activations, kv, true, ""};
        if (activations != FormatId::f32 && device == "ref") c.note = "ref multiplies in f32 whatever was asked for";
        else if (activations != FormatId::f32) c.note = "quantized weights only; f32, f16 and bf16 weights multiply in f32";
        table.push_back(c);
      }
  return table;
}

FormatId resolve_kv_format(const EngineOptions& options) {
  if (options.kv_format != FormatId::unknown) return options.kv_format;
  return options.activations == FormatId::f32 ? FormatId::f32 : FormatId::f16;
}

std::string activations_text(FormatId asked_for, const Model& model) {
  return std::string(format(model.activations()).name) + (asked_for == FormatId::unknown ? " (auto)" : "");
}

void check_compatibility(const EngineOptions& options) {
  const std::string device = resolve_device(options.device);
  const FormatId kv = resolve_kv_format(options);
  if (options.activations != FormatId::f32 && options.activations != FormatId::i8 && options.activations != FormatId::i16 && options.activations != FormatId::unknown)
    fail("activations in {} are not supported: use i8, i16 or f32", format(options.activations).name);
  if (kv != FormatId::f32 && kv != FormatId::f16 && kv != FormatId::bf16 && kv != FormatId::fp8_e4m3)
    fail("KV in {} is not supported: use f32, f16, bf16 or fp8_e4m3", format(kv).name);
  for (const Combination& c : compatibility_table())
    if (c.device == device && c.activations == options.activations && c.kv_format == kv && !c.works)
      fail("device {} with {} activations and KV in {} does not work: {}", device, format(c.activations).name, format(kv).name, c.note);
}

}  // namespace ridge
