// SPDX-License-Identifier: Apache-2.0

// Trains a model that predicts text character by character, on every device of the machine. Then
// lets it write.
//
//   train_text --devices 2 --text ~/notes --save notes.safetensors

#include <lockstep/lockstep.hpp>

#include "models/text_models.hpp"
#include "support/arguments.hpp"
#include "support/devices.hpp"
#include "support/metrics_file.hpp"
#include "support/progress_bar.hpp"
#include "support/text.hpp"
#include "support/training_run.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ls = lockstep;

namespace {

struct Settings {
  std::filesystem::path text = example::find_cxx_headers();
  std::string model = "lstm";
  example::TextModelOptions sizes;
  std::string devices;
  std::int64_t epochs = 3;
  std::int64_t epoch_steps = 500;
  std::int64_t batch_size = 64;
  double lr = 4e-3;
  std::uint64_t seed = 0;
  std::string dtype = "f32";
  std::int64_t max_steps = 0;
  std::int64_t sample = 400;
  double temperature = 0.7;
  std::filesystem::path save;
  std::filesystem::path resume;
  std::filesystem::path metrics;
};

using Windows = ls::data::DataLoader<example::TextWindows>;

struct Parts {
  std::string train;
  std::string validation;
};

// The last tenth of the text is for validation, at most 100,000 characters.
Parts split(const std::string& text) {
  constexpr std::size_t kMost = 100'000;
  const std::size_t count = std::min(text.size() / 10, kMost);
  return {text.substr(0, text.size() - count), text.substr(text.size() - count)};
}

Windows make_loader(const Settings& settings, const std::string& text, bool train) {
  const std::int64_t length = settings.sizes.length;
  if (static_cast<std::int64_t>(text.size()) <= length) {
    throw std::runtime_error(settings.text.string() + ": " + std::to_string(text.size()) +
                             " characters to " + (train ? "train" : "validate") +
                             " with are not enough for windows of " + std::to_string(length));
  }
  return Windows{example::TextWindows(text, length),
                 {.batch_size = settings.batch_size, .shuffle = train, .seed = settings.seed}};
}

// The mean loss per character of the validation part.
template <class Net>
double validation_loss(ls::DataParallel<Net>& model, Windows& loader) {
  const ls::NoGradGuard no_grad;
  model.eval();
  double sum = 0;
  for (auto [text, next] : loader) {
    sum += model(text, next).item() * static_cast<double>(text.size(1));
  }
  model.train();
  return sum / static_cast<double>(loader.dataset().size());
}

// Draws the next character. A higher temperature makes unlikely characters likelier.
char draw(const std::vector<double>& scores, double temperature, ls::Generator& generator) {
  const double highest = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  double sum = 0;
  for (const double score : scores) {
    weights.push_back(std::exp((score - highest) / temperature));
    sum += weights.back();
  }
  double rest = generator.uniform() * sum;
  std::size_t character = 0;
  while (character + 1 < weights.size() && rest >= weights[character]) rest -= weights[character++];
  return static_cast<char>(character);
}

// What the model writes on a new line. It draws each character by the ones before it, as many as it
// was trained with.
template <class Net>
std::string write_text(Net& net, ls::Device device, const Settings& settings,
                       ls::Generator& generator) {
  const ls::NoGradGuard no_grad;
  ls::eval(net);
  std::string text = "\n";
  for (std::int64_t i = 0; i < settings.sample; ++i) {
    const auto length = std::min(text.size(), static_cast<std::size_t>(settings.sizes.length));
    std::vector<std::int64_t> last;
    for (const char character : text.substr(text.size() - length)) {
      last.push_back(example::index_of(character));
    }
    const auto count = static_cast<std::int64_t>(length);
    const ls::Tensor scores = net.scores(ls::from_values(last, {count, 1}, device));
    const ls::Tensor next = ls::narrow(scores, 0, count - 1, 1).to(ls::Dtype::f64);
    text += draw(next.to_vector<double>(), settings.temperature, generator);
  }
  ls::train(net);
  return text.substr(1);
}

// Text for a terminal: control characters become question marks, except newlines and tabs.
std::string printable(std::string text) {
  for (char& character : text) {
    const bool control = static_cast<unsigned char>(character) < ' ' || character == '\x7f';
    if (control && character != '\n' && character != '\t') character = '?';
  }
  return text;
}

// Says which parameters the model has.
std::string name_of(const Settings& settings) {
  std::string name = settings.model + ", " + std::to_string(settings.sizes.layers) + " layers of " +
                     std::to_string(settings.sizes.width);
  if (settings.model == "transformer") {
    name += ", windows of " + std::to_string(settings.sizes.length);
  }
  return name;
}

template <class Net>
void train(const Settings& settings, Net (*make_net)(const example::TextModelOptions&)) {
  example::check_folder(settings.save);
  const auto devices = example::choose_devices(settings.devices);
  const Parts parts = split(example::read_text(settings.text));
  Windows loader = make_loader(settings, parts.train, true);
  Windows validation_loader = make_loader(settings, parts.validation, false);
  const double bigram = example::Bigram(parts.train).loss(validation_loader.dataset().covered());
  const std::int64_t epoch_steps =
      settings.epoch_steps > 0 ? std::min(settings.epoch_steps, loader.size()) : loader.size();
  example::MetricsFile metrics(settings.metrics, "characters_per_second", "validation_loss");

  ls::manual_seed(settings.seed);
  ls::DataParallel model{
      make_net(settings.sizes), devices, {.dim = 1, .scalar_outputs = ls::Reduction::mean}};
  ls::optim::AdamW adam{model.parameters(), {.lr = settings.lr}};
  ls::optim::LRScheduler schedule{adam, example::rise_and_fall(settings.epochs * epoch_steps)};
  example::TrainingRun run{name_of(settings), model, adam, schedule};
  run.resume(settings.resume);

  while (run.epoch < settings.epochs) {
    const std::int64_t epoch = run.epoch + 1;
    example::ProgressBar bar("epoch " + std::to_string(epoch), epoch_steps, "characters");
    loader.set_epoch(static_cast<std::uint64_t>(run.epoch));
    const auto start = std::chrono::steady_clock::now();
    std::int64_t done = 0;
    double sum = 0;
    for (std::int64_t batch = 1; auto [text, next] : loader) {
      if (settings.max_steps > 0 && run.step == settings.max_steps) return;
      const ls::Tensor loss = model(text, next);
      adam.zero_grad();
      loss.backward();
      ls::optim::clip_grad_norm_(model.parameters(), 1);
      adam.step();
      schedule.step();

      done += text.numel();
      sum += loss.item();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      const double rate = static_cast<double>(done) / time.count();
      bar.update(batch, loss.item(), rate);
      metrics.add_step(++run.step, epoch, loss.item(), rate);
      if (batch++ == epoch_steps) break;
    }
    const double validation = validation_loss(model, validation_loader);
    std::cout << "epoch " << epoch << std::fixed << std::setprecision(4) << "  train loss "
              << sum / static_cast<double>(epoch_steps) << "  validation loss " << validation
              << "  (bigrams " << bigram << ")" << std::endl;
    metrics.add_score(run.step, epoch, validation);
    // Its own random numbers, so that writing changes nothing in training.
    ls::Generator generator(settings.seed + static_cast<std::uint64_t>(epoch));
    if (settings.sample > 0) {
      std::cout << printable(write_text(model.module(), devices[0], settings, generator)) << "\n"
                << std::endl;
    }
    run.epoch = epoch;
    run.save(settings.save);
  }
}

void check_sizes(const Settings& settings) {
  const auto check = [](bool good, const char* what) {
    if (!good) throw example::UsageError(what);
  };
  check(settings.dtype == "f32" || settings.dtype == "f64", "--dtype needs f32 or f64");
  check(settings.sizes.length > 0, "--length needs at least one character");
  check(settings.sizes.layers > 0, "--layers needs at least one layer");
  check(settings.temperature > 0, "--temperature needs a number above 0");
}

Settings parse(int argc, char** argv) {
  Settings settings;
  example::Arguments arguments("Trains a model of text, character by character.");
  arguments.add("--text", settings.text, "a folder; all text in it is used");
  arguments.add("--model", settings.model, "lstm or transformer");
  arguments.add("--width", settings.sizes.width, "how many numbers stand for a character");
  arguments.add("--layers", settings.sizes.layers, "of the model");
  arguments.add("--length", settings.sizes.length, "characters in a row that are trained with");
  arguments.add("--dropout", settings.sizes.dropout, "the part that is left out in training");
  arguments.add("--devices", settings.devices,
                "a number, or a list such as cpu:0,cpu:1; all there are by default");
  arguments.add("--epochs", settings.epochs, "how many there are");
  arguments.add("--epoch-steps", settings.epoch_steps, "steps an epoch; 0 for the whole text");
  arguments.add("--batch-size", settings.batch_size, "rows of characters a step, over all devices");
  arguments.add("--lr", settings.lr, "the highest learning rate");
  arguments.add("--seed", settings.seed, "of the first weights, the shuffling and the writing");
  arguments.add("--sample", settings.sample, "characters that are written after each epoch");
  arguments.add("--temperature", settings.temperature, "of the writing: low is dull, high is wild");
  arguments.add("--save", settings.save, "a .safetensors file to write after each epoch");
  arguments.add("--resume", settings.resume,
                "such a file to go on from, the other options being those it was made with");
  arguments.add("--metrics", settings.metrics, "a .csv file for the loss of each step");
  arguments.add("--dtype", settings.dtype, "f32 or f64");
  arguments.add("--max-steps", settings.max_steps, "stop after so many steps, unless 0");
  arguments.parse(argc, argv);
  check_sizes(settings);
  settings.sizes.dtype = settings.dtype == "f64" ? ls::Dtype::f64 : ls::Dtype::f32;
  return settings;
}

void train(const Settings& settings) {
  if (settings.text.empty()) {
    throw std::runtime_error("there are no C++ headers of g++: --text has to name a folder");
  }
  if (settings.model == "lstm") {
    train(settings, example::make_lstm_model);
  } else if (settings.model == "transformer") {
    train(settings, example::make_transformer_model);
  } else {
    throw example::UsageError("--model needs lstm or transformer, not \"" + settings.model + "\"");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(argv[0], [&] { train(parse(argc, argv)); });
}
