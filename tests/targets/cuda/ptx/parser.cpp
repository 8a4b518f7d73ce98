// SPDX-License-Identifier: MIT
// Reads the text of a module. Calls are inlined: each has registers and labels of its own, told by a prefix.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <set>

#include "machine.h"

namespace ptx {
namespace {

const std::map<std::string, Type> TYPES = {
    {"pred", Type::pred}, {"b8", Type::u8},     {"u8", Type::u8},         {"s8", Type::s8},   {"b16", Type::u16},
    {"u16", Type::u16},   {"s16", Type::s16},   {"b32", Type::u32},       {"u32", Type::u32}, {"s32", Type::s32},
    {"b64", Type::u64},   {"u64", Type::u64},   {"s64", Type::s64},       {"f16", Type::f16}, {"bf16", Type::bf16},
    {"f32", Type::f32},   {"f16x2", Type::f16x2}, {"bf16x2", Type::bf16x2}, {"f64", Type::f64},
};
const std::map<std::string, Space> SPACES = {
    {"global", Space::global}, {"shared", Space::shared}, {"local", Space::local}, {"param", Space::parameter}};
const std::map<std::string, Rounding> ROUNDINGS = {
    {"rn", Rounding::nearest},           {"rz", Rounding::zero},          {"rm", Rounding::down},
    {"rp", Rounding::up},                {"rni", Rounding::nearest_integer}, {"rzi", Rounding::zero_integer},
    {"rmi", Rounding::down_integer},     {"rpi", Rounding::up_integer}};
const std::set<std::string> WORDS = {
    "NaN", "abs", "add", "aligned", "all", "and", "any", "approx", "async", "ballot", "bfly", "ca", "cas", "cg",
    "clamp", "col", "commit_group", "cta", "down", "eq", "equ", "exch", "fence", "ftz", "full", "ge", "geu", "gl",
    "gt", "gtu", "hi", "hs", "idx", "l", "le", "leu", "lo", "ls", "lt", "ltu", "m16n8k16", "m64", "m8n8", "max",
    "min", "mma_async", "nan", "nc", "ne", "neu", "num", "or", "proxy", "r", "relaxed", "row", "sat", "shared::cta",
    "sync", "sys", "to", "trans", "uni", "up", "v2", "v4", "volatile", "wait_all", "wait_group", "warp", "wide",
    "wrap", "x1", "x2", "x4", "xor"};

std::string strip(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

std::vector<std::string> split(const std::string& text, char at = ',') {  // outside of braces and brackets
  std::vector<std::string> out;
  std::string part;
  int depth = 0;
  for (char c : text) {
    depth += std::strchr("{[(", c) != nullptr ? 1 : std::strchr("}])", c) != nullptr ? -1 : 0;
    if (c == at && depth == 0) {
      out.push_back(strip(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!strip(part).empty()) out.push_back(strip(part));
  return out;
}

std::string between(const std::string& text, char open, char close) {
  const size_t first = text.find(open), last = text.rfind(close);
  if (first == std::string::npos || last == std::string::npos) throw Fault{"no " + std::string(1, open) + " in " + text};
  return text.substr(first + 1, last - first - 1);
}

std::string without_comments(const std::string& text) {
  std::string out;
  for (size_t k = 0; k < text.size(); ++k) {
    if (text.compare(k, 2, "//") == 0) k = text.find('\n', k);
    if (k == std::string::npos || text[k] == '\0') break;
    out += text[k];
  }
  return out;
}

// A number as PTX writes it: an integer, or the bits of a float.
uint64_t number(const std::string& text) {
  if (text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]) != nullptr)
    return std::strtoull(text.c_str() + 2, nullptr, 16);
  return text[0] == '-' ? uint64_t(std::strtoll(text.c_str(), nullptr, 0)) : std::strtoull(text.c_str(), nullptr, 0);
}

// `.shared .align 16 .b8 bytes[64]`: what it says, its name, and how many bytes it has.
struct Variable {
  std::vector<std::string> words;
  std::string name;
  Type type = Type::u8;
  size_t align = 1, bytes = 0;
  bool is(const char* word) const { return std::find(words.begin(), words.end(), word) != words.end(); }
};
Variable variable(const std::string& text) {
  Variable out;
  const size_t bracket = text.find('[');
  out.words = split(text.substr(0, bracket), ' ');
  for (std::string& word : out.words) word = strip(word);
  out.words.erase(std::remove(out.words.begin(), out.words.end(), ""), out.words.end());
  out.name = out.words.back();
  for (size_t k = 0; k + 1 < out.words.size(); ++k) {
    if (out.words[k] == ".align") out.align = number(out.words[k + 1]);
    const auto type = TYPES.find(out.words[k].substr(1));
    if (type != TYPES.end()) out.type = type->second;
  }
  out.align = std::max(out.align, size_t(bytes_of(out.type)));
  out.bytes = bytes_of(out.type) * (bracket == std::string::npos ? 1 : number(text.substr(bracket + 1)));
  return out;
}
size_t aligned(size_t at, size_t align) { return (at + align - 1) / align * align; }

struct Function {
  std::string result, body;
  std::vector<std::string> parameters;
};

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(without_comments(text)) {}
  Module module();

 private:
  void declaration(const std::string& text);
  void function(const std::string& head, const std::string& body);
  Kernel kernel(const std::string& head, const std::string& body);
  void statements(const std::string& body);
  void statement(const std::string& text);
  void declared(const Variable& variable);
  void called(const std::string& rest);
  void modifiers(Instruction& out, const std::string& mnemonic);
  void operands(Instruction& out, const std::vector<std::string>& parts);
  void memory(Instruction& out, const std::string& text);
  std::vector<int> group(const std::string& text);
  int operand(const std::string& text);
  int slot(const std::string& key, bool& fresh);
  int constant(uint64_t value);

  std::string text_;
  std::map<std::string, uint64_t> globals_;
  std::set<std::string> dynamic_;
  std::map<std::string, Function> functions_;
  // Of the kernel that is being read.
  Kernel kernel_;
  std::map<std::string, int> slots_, labels_;
  std::map<std::string, uint64_t> parameters_, variables_;
  std::string prefix_;
  int calls_ = 0;
};

Module Reader::module() {
  Module out;
  std::vector<std::pair<std::string, std::string>> kernels;
  size_t at = 0;
  while ((at = text_.find_first_not_of(" \t\r\n", at)) != std::string::npos) {
    const size_t line = text_.find('\n', at), brace = text_.find('{', at), end = text_.find(';', at);
    const std::string first = text_.substr(at, line - at);
    if (first.rfind(".version", 0) == 0 || first.rfind(".target", 0) == 0 || first.rfind(".address_size", 0) == 0) {
      at = line;
      continue;
    }
    const bool variable = end != std::string::npos && text_.substr(at, std::min(end, brace) - at).find('(') == std::string::npos;
    if (variable || end < brace) {
      declaration(strip(text_.substr(at, end - at)));
      at = end + 1;
      continue;
    }
    size_t close = brace;
    for (int depth = 0; close < text_.size(); ++close) {
      depth += text_[close] == '{' ? 1 : text_[close] == '}' ? -1 : 0;
      if (depth == 0) break;
    }
    const std::string head = strip(text_.substr(at, brace - at)), body = text_.substr(brace + 1, close - brace - 1);
    if (head.find(".entry") != std::string::npos)
      kernels.push_back({head, body});
    else
      function(head, body);
    at = close + 1;
  }
  for (const auto& [head, body] : kernels) {
    Kernel made = kernel(head, body);
    out.kernels[made.name] = std::move(made);
  }
  return out;
}

void Reader::declaration(const std::string& text) {
  if (text.find(".func") != std::string::npos) return;  // a prototype
  const size_t equals = text.find('=');
  const Variable declared = variable(strip(text.substr(0, equals)));
  if (declared.is(".shared")) {
    if (!declared.is(".extern")) throw Fault{"shared memory of a module: " + text};
    dynamic_.insert(declared.name);
    return;
  }
  const uint64_t memory = allocated(declared.bytes);
  std::memset(reinterpret_cast<void*>(memory), 0, declared.bytes);
  if (equals != std::string::npos) {
    const std::string values = strip(text.substr(equals + 1));
    size_t at = 0;
    for (const std::string& value : split(values[0] == '{' ? between(values, '{', '}') : values)) {
      const uint64_t bits = number(value);
      std::memcpy(reinterpret_cast<char*>(memory) + at, &bits, bytes_of(declared.type));
      at += bytes_of(declared.type);
    }
  }
  globals_[declared.name] = memory;
}

void Reader::function(const std::string& head, const std::string& body) {
  Function out;
  std::string rest = strip(head.substr(head.find(".func") + 5));
  if (rest[0] == '(') {
    const size_t close = rest.find(')');
    out.result = variable(rest.substr(1, close - 1)).name;
    rest = strip(rest.substr(close + 1));
  }
  for (const std::string& parameter : split(between(rest, '(', ')'))) out.parameters.push_back(variable(parameter).name);
  out.body = body;
  functions_[strip(rest.substr(0, rest.find('(')))] = out;
}

Kernel Reader::kernel(const std::string& head, const std::string& body) {
  kernel_ = Kernel();
  slots_.clear(), labels_.clear(), parameters_.clear(), variables_.clear();
  const size_t entry = head.find(".entry") + 6, open = head.find('(', entry), close = head.find(')', entry);
  kernel_.name = strip(head.substr(entry, open - entry));
  for (const std::string& text : split(head.substr(open + 1, close - open - 1))) {
    const Variable parameter = variable(text);
    const size_t at = aligned(kernel_.parameter_bytes, parameter.align);
    parameters_[parameter.name] = at;
    kernel_.parameters.push_back({at, parameter.bytes});
    kernel_.parameter_bytes = at + parameter.bytes;
  }
  const size_t limit = head.find(".maxntid");
  if (limit != std::string::npos) {
    kernel_.most_threads = 1;
    for (const std::string& extent : split(head.substr(limit + 8, head.find('\n', limit) - limit - 8)))
      kernel_.most_threads *= int(number(extent));
  }
  statements(body);
  statement("ret");
  for (Instruction& instruction : kernel_.code) {
    if (!instruction.branch) continue;
    const auto label = labels_.find(instruction.label);
    if (label == labels_.end()) throw Fault{"no label: " + instruction.text};
    instruction.target = label->second;
  }
  return std::move(kernel_);
}

void Reader::statements(const std::string& body) {
  size_t at = 0;
  while (at < body.size()) {
    if (std::isspace(body[at]) || body[at] == '{' || body[at] == '}') {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < body.size() && (std::isalnum(body[end]) || body[end] == '$' || body[end] == '_')) ++end;
    if (end > at && body[end] == ':' && body[end + 1] != ':') {
      labels_[prefix_ + body.substr(at, end - at)] = int(kernel_.code.size());
      at = end + 1;
      continue;
    }
    end = body.find(';', at);
    if (end == std::string::npos) throw Fault{"no end: " + body.substr(at, 80)};
    statement(strip(body.substr(at, end - at)));
    at = end + 1;
  }
}

void Reader::declared(const Variable& variable) {
  size_t& used = variable.is(".shared") ? kernel_.shared_bytes : kernel_.local_bytes;
  used = aligned(used, std::max<size_t>(variable.align, 16));
  variables_[prefix_ + variable.name] = WINDOW + used;
  used += variable.bytes;
}

void Reader::statement(const std::string& text) {
  if (text.rfind(".reg", 0) == 0 || text.rfind(".pragma", 0) == 0) return;
  if (text[0] == '.') return declared(variable(text));
  Instruction out;
  out.text = text;
  std::string rest = text;
  const auto word = [&rest] {
    const size_t end = rest.find_first_of(" \t\n");
    const std::string found = rest.substr(0, end);
    rest = end == std::string::npos ? "" : strip(rest.substr(end));
    return found;
  };
  if (rest[0] == '@') {
    const std::string condition = word();
    out.unless = condition[1] == '!';
    out.guard = operand(condition.substr(out.unless ? 2 : 1));
  }
  const std::string mnemonic = word();
  out.opcode = mnemonic.substr(0, mnemonic.find('.'));
  if (out.opcode == "call") return called(rest);
  if (out.opcode == "bra" || ((out.opcode == "ret" || out.opcode == "exit") && !prefix_.empty())) {
    out.branch = true;
    out.label = prefix_ + (out.opcode == "bra" ? rest : "return");
  } else if (out.opcode == "ret" || out.opcode == "exit") {
    out.exit = true;
  } else {
    modifiers(out, mnemonic);
    for (const auto* table : {&VALUES, &ACCESSES, &COLLECTIVES}) {
      const auto found = table->find(out.opcode);
      if (found == table->end()) continue;
      out.run = found->second.run;
      out.meeting = found->second.meeting;
    }
    if (out.run == nullptr) throw Fault{"not simulated: " + text};
    if (out.opcode == "bar") out.meeting = out.has("warp") ? Meeting::named : Meeting::block;
    operands(out, split(rest));
  }
  kernel_.code.push_back(out);
}

void Reader::called(const std::string& rest) {
  std::vector<std::string> parts = split(rest);
  std::string result;
  if (parts[0][0] == '(') {
    result = between(parts[0], '(', ')');
    parts.erase(parts.begin());
  }
  const auto found = functions_.find(parts[0]);
  if (found == functions_.end()) throw Fault{"no function: " + rest};
  const std::string outer = prefix_, inner = std::to_string(++calls_) + ":";
  const std::vector<std::string> given = parts.size() > 1 ? split(between(parts[1], '(', ')')) : std::vector<std::string>();
  if (!result.empty()) variables_[inner + found->second.result] = variables_.at(outer + strip(result));
  for (size_t k = 0; k < given.size(); ++k)
    variables_[inner + found->second.parameters[k]] = variables_.at(outer + given[k]);
  prefix_ = inner;
  statements(found->second.body);
  labels_[prefix_ + "return"] = int(kernel_.code.size());
  prefix_ = outer;
}

void Reader::modifiers(Instruction& out, const std::string& mnemonic) {
  std::vector<std::string> parts = split(mnemonic, '.');
  for (size_t k = 1; k < parts.size(); ++k) {
    const std::string& part = parts[k];
    const auto type = TYPES.find(part);
    const auto space = SPACES.find(part);
    const auto rounding = ROUNDINGS.find(part);
    const bool shape = part[0] == 'm' && part.rfind("m64n", 0) == 0;
    if (type != TYPES.end())
      out.types.push_back(type->second);
    else if (space != SPACES.end() && !(out.opcode == "cp" && part == "global"))  // of a copy: where it goes
      out.space = space->second;
    else if (rounding != ROUNDINGS.end())
      out.rounding = rounding->second;
    else if (WORDS.count(part) || shape || part == "global")
      out.words.push_back(part);
    else
      throw Fault{"not simulated: ." + part + " of " + out.text};
  }
}

void Reader::operands(Instruction& out, const std::vector<std::string>& parts) {
  static const std::set<std::string> without_result = {"st", "cp", "bar", "membar", "fence"};
  const bool waits = out.opcode == "wgmma" && !out.has("mma_async");
  bool first = without_result.count(out.opcode) == 0 && !waits;
  for (const std::string& part : parts) {
    const size_t second = part.find('|');
    if (first) {
      if (second != std::string::npos) out.also = operand(part.substr(second + 1));
      out.to = group(part.substr(0, second));
    } else if (part[0] == '[' && out.address >= 0) {  // of a copy: where it goes came first
      out.operands.push_back({out.address, constant(uint64_t(out.offset))});
      memory(out, part);
    } else if (part[0] == '[') {
      memory(out, part);
    } else {
      out.operands.push_back(group(part));
    }
    first = false;
  }
}

void Reader::memory(Instruction& out, const std::string& text) {
  std::string base = between(text, '[', ']');
  const size_t sign = base.find_first_of("+-", 1);
  out.offset = 0;
  if (sign != std::string::npos) {
    out.offset = std::strtoll(strip(base.substr(base[sign] == '+' ? sign + 1 : sign)).c_str(), nullptr, 0);
    base = base.substr(0, sign);
  }
  base = strip(base);
  const auto parameter = parameters_.find(base);
  out.of_kernel = prefix_.empty() && parameter != parameters_.end();
  out.address = out.of_kernel ? constant(parameter->second) : operand(base);
}

std::vector<int> Reader::group(const std::string& text) {
  std::vector<int> out;
  for (const std::string& part : text[0] == '{' ? split(between(text, '{', '}')) : std::vector<std::string>{text})
    out.push_back(operand(part));
  return out;
}

int Reader::operand(const std::string& text) {
  static const std::map<std::string, Special> specials = {
      {"%tid", Special::tid},       {"%ntid", Special::ntid},     {"%ctaid", Special::ctaid},
      {"%nctaid", Special::nctaid}, {"%laneid", Special::lane},   {"%warpid", Special::warp}};
  if (std::isdigit(text[0]) || text[0] == '-') return constant(number(text));
  for (const std::string& name : {prefix_ + text, text}) {
    const auto variable = variables_.find(name);
    if (variable != variables_.end()) return constant(variable->second);
  }
  const auto global = globals_.find(text);
  if (global != globals_.end()) return constant(global->second);
  const auto special = specials.find(text.substr(0, text.find('.')));
  bool fresh = false;
  if (dynamic_.count(text) || special != specials.end()) {
    const int found = slot(text, fresh);
    const int axis = text.find('.') == std::string::npos ? 0 : text.back() - 'x';
    if (fresh)
      kernel_.origins.push_back({found, dynamic_.count(text) ? Special::dynamic_shared : special->second, axis});
    return found;
  }
  return slot(prefix_ + text, fresh);
}

int Reader::slot(const std::string& key, bool& fresh) {
  const auto [place, inserted] = slots_.insert({key, kernel_.slots});
  fresh = inserted;
  kernel_.slots += inserted ? 1 : 0;
  return place->second;
}

int Reader::constant(uint64_t value) {
  bool fresh = false;
  const int found = slot("#" + std::to_string(value), fresh);
  if (fresh) kernel_.constants.push_back({found, value});
  return found;
}

}  // namespace

int bytes_of(Type type) {
  static const int bytes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 4, 4, 8};
  return bytes[int(type)];
}
bool is_float(Type type) { return type >= Type::f16; }
bool is_signed(Type type) { return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64; }

bool Instruction::has(const char* word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

Module parsed(const std::string& text) { return Reader(text).module(); }

}  // namespace ptx
