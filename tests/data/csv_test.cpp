// SPDX-License-Identifier: Apache-2.0
#include <lockstep/data/csv.hpp>

#include <lockstep/data/dataloader.hpp>
#include <lockstep/data/dataset.hpp>

#include "data/files.hpp"
#include "support/expect_error.hpp"
#include "support/grouped_digits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace csv_test {

using lockstep::DataError;
using lockstep::Dtype;
using lockstep::Shape;
using lockstep::Tensor;
using lockstep::data::CsvMissing;
using lockstep::data::CsvOptions;
using lockstep::data::CsvTable;
using lockstep::data::read_csv;
using lockstep::testing::TempDirectory;
using lockstep::testing::throws;
using lockstep::testing::values_of;
using lockstep::testing::write_file;
using lockstep::testing::write_gzip;
using Strings = std::vector<std::string>;

// A file called data.csv with this text.
class Csv : public ::testing::Test {
 protected:
  CsvTable read(const std::string& text, const CsvOptions& options = {}) const {
    write_file(path_, text);
    return read_csv(path_, options);
  }

  const TempDirectory directory_;
  const std::filesystem::path path_ = directory_ / "data.csv";
};

TEST_F(Csv, GivesColumnsByNameAndByNumber) {
  const CsvTable table = read("a,b,class\n1,2.5,0\n-3,4e1,2\n");
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(table.column_count(), 3);
  EXPECT_EQ(table.names(), (Strings{"a", "b", "class"}));

  const Tensor both = table.columns({"b", "a"});
  EXPECT_EQ(both.sizes(), (Shape{2, 2}));
  EXPECT_EQ(values_of<float>(both), (std::vector<float>{2.5, 1, 40, -3}));
  EXPECT_EQ(values_of<double>(table.columns({1, 0}, Dtype::f64)),
            (std::vector<double>{2.5, 1, 40, -3}));
  const Tensor classes = table.column("class", Dtype::i64);
  EXPECT_EQ(classes.sizes(), Shape{2});
  EXPECT_EQ(values_of<std::int64_t>(classes), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(values_of<std::int32_t>(table.column(0, Dtype::i32)),
            (std::vector<std::int32_t>{1, -3}));
  EXPECT_EQ(values_of<float>(table.columns()), (std::vector<float>{1, 2.5, 0, -3, 40, 2}));
  EXPECT_EQ(table.strings("b"), (Strings{"2.5", "4e1"}));
}

TEST_F(Csv, MakesDatasets) {
  const CsvTable table = read("a,b,class\n1,2,0\n3,4,1\n5,6,0\n");
  const lockstep::data::TensorDataset dataset{table.columns({"a", "b"}),
                                              table.column("class", Dtype::i64)};
  lockstep::data::DataLoader loader{dataset, {.batch_size = 2, .num_workers = 2}};
  std::vector<float> features;
  for (const auto& [inputs, classes] : loader) {
    EXPECT_EQ(inputs.size(0), classes.size(0));
    for (const float value : values_of<float>(inputs)) features.push_back(value);
  }
  EXPECT_EQ(features, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(Csv, AColumnMayHaveAnEmptyName) {
  const CsvTable table = read(",value\n7,1\n8,2\n");
  EXPECT_EQ(values_of<float>(table.column("")), (std::vector<float>{7, 8}));
}

TEST_F(Csv, UnderstandsQuotes) {
  const CsvTable table = read(
      "name,\"the, value\"\r\n"
      "\"says \"\"hi\"\"\",\"1\"\r\n"
      "\"two\nlines\",2\n"
      "\"\"\"\",\"3\"\n"
      "\"\",4");
  EXPECT_EQ(table.names(), (Strings{"name", "the, value"}));
  EXPECT_EQ(table.strings(0), (Strings{"says \"hi\"", "two\nlines", "\"", ""}));
  EXPECT_EQ(values_of<float>(table.column("the, value")), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Csv, LineEndsMarksAndEmptyLinesDoNotMatter) {
  for (const char* text : {"a,b\n1,2\n", "a,b\n1,2", "a,b\r\n1,2\r\n", "\n\r\na,b\n\n1,2\n\n\r\n",
                           "\xEF\xBB\xBF"
                           "a,b\n1,2"}) {
    const CsvTable table = read(text);
    EXPECT_EQ(table.names(), (Strings{"a", "b"}));
    EXPECT_EQ(values_of<float>(table.columns()), (std::vector<float>{1, 2}));
  }
}

TEST_F(Csv, OtherDelimitersAndNoNames) {
  const CsvTable table = read("1;2\n3;4\n", {.delimiter = ';', .header = false});
  EXPECT_TRUE(table.names().empty());
  EXPECT_EQ(values_of<float>(table.column(1)), (std::vector<float>{2, 4}));
  EXPECT_EQ(read("1\t2", {.delimiter = '\t', .header = false}).column_count(), 2);
  EXPECT_THROW(read("", {.delimiter = '"'}), lockstep::ValueError);
}

TEST_F(Csv, ReadsPackedFiles) {
  write_gzip(path_, "a\n7\n");
  EXPECT_EQ(values_of<float>(read_csv(path_).column("a")), std::vector<float>{7});
}

TEST_F(Csv, NothingGivesEmptyTensors) {
  const CsvTable table = read("a,b\n");
  EXPECT_EQ(table.columns().sizes(), (Shape{0, 2}));
  EXPECT_EQ(table.column("a").sizes(), Shape{0});
  const CsvTable nothing = read("", {.header = false});
  EXPECT_EQ(nothing.columns().sizes(), (Shape{0, 0}));
  EXPECT_TRUE(throws<DataError>([&] { read(""); }, "data.csv: is empty, expected a row of names"));
}

TEST_F(Csv, NumbersAreReadExactlyAndInFull) {
  const auto value = [&](const std::string& text) {
    return values_of<double>(read(text, {.header = false}).column(0, Dtype::f64))[0];
  };
  EXPECT_EQ(value(" +1.25\t"), 1.25);
  EXPECT_EQ(value("0.1"), 0.1);
  EXPECT_EQ(value("-1e-3"), -1e-3);
  EXPECT_EQ(value("1e-400"), 0.0);
  {
    const lockstep::testing::GroupedDigits locale('.');
    EXPECT_EQ(value("1.0e-400"), 0.0);
  }
  EXPECT_EQ(value("5e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(value("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value("nan")));
  EXPECT_EQ(values_of<float>(read("1e-50", {.header = false}).column(0))[0], 0.0F);
  for (const char* bad :
       {"1x", "x", "1 2", "--1", "+-1", "+", "0x10", "1,", "1e999", "-1e999", "nan(1)"}) {
    EXPECT_THROW(value(std::string("\"") + bad + "\""), DataError) << bad;
  }
}

TEST_F(Csv, AFieldThatIsNoNumberIsAnErrorThatNamesThePlace) {
  const CsvTable table = read("name,age\n\"a\nb\",3\n\nc,\"4\n\"\n");
  EXPECT_TRUE(throws<DataError>([&] { table.column("name"); },
                                "data.csv: line 2: column 0 (\"name\"): expected a number of f32, "
                                "got \"a\nb\""));
  EXPECT_TRUE(throws<DataError>([&] { table.column("age", Dtype::i64); },
                                "data.csv: line 5: column 1 (\"age\"): expected a number of i64"));
  const CsvTable numbers = read("1.5,3000000000", {.header = false});
  EXPECT_TRUE(throws<DataError>([&] { numbers.column(0, Dtype::i64); },
                                "line 1: column 0: expected a number of i64, got \"1.5\""));
  EXPECT_TRUE(throws<DataError>([&] { numbers.column(1, Dtype::i32); },
                                "got \"3000000000\", which is out of its range"));
  EXPECT_THROW(numbers.column(0, Dtype::f16), lockstep::DtypeError);
}

// The line of a field that begins behind a line end in its own row.
TEST_F(Csv, LinesAreCountedWithinRowsToo) {
  const CsvTable table = read("a,b,c\n\"1\n\n\",x,3\n");
  EXPECT_TRUE(throws<DataError>([&] { table.column("b"); }, "line 4: column 1 (\"b\")"));
}

TEST_F(Csv, MissingValuesAreErrorsOrNan) {
  const std::string text = "a,b\n1,\n,NA\n \t,\"\"\n";
  EXPECT_TRUE(throws<DataError>([&] { read(text).column("a"); },
                                "line 3: column 0 (\"a\"): the value is missing"));
  EXPECT_TRUE(throws<DataError>([&] { read(text).column("b"); }, "line 2: column 1 (\"b\")"));

  const CsvTable table = read(text, {.missing = CsvMissing::nan, .missing_values = {"NA", "1"}});
  for (const float value : values_of<float>(table.columns())) EXPECT_TRUE(std::isnan(value));
  const CsvTable blanks =
      read("a,b\n 1 ,\t-999\n", {.missing = CsvMissing::nan, .missing_values = {"-999", "\t1"}});
  for (const float value : values_of<float>(blanks.columns())) EXPECT_TRUE(std::isnan(value));
  const CsvTable quoted =
      read("a\n\"no \"\"a\"\"\"\n", {.missing = CsvMissing::nan, .missing_values = {"no \"a\""}});
  EXPECT_TRUE(std::isnan(values_of<float>(quoted.column("a"))[0]));
  const CsvTable numbers = read("a\n-999\n7\n", {.missing_values = {"NA", "-998"}});
  EXPECT_EQ(values_of<float>(numbers.column("a")), (std::vector<float>{-999, 7}));
  EXPECT_TRUE(throws<DataError>([&] { table.column("b", Dtype::i64); },
                                "the value is missing, and whole numbers have no NaN"));
}

TEST_F(Csv, AnyThreadMayRead) {
  const CsvTable table = read("a,b,class\n1,2.5,\"x\"\"\"\n-3,4e1,y\n");
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&table] {
      for (int time = 0; time < 50; ++time) {
        const CsvTable copy = table;
        EXPECT_EQ(values_of<float>(table.columns({"b", 0})), (std::vector<float>{2.5, 1, 40, -3}));
        EXPECT_EQ(values_of<double>(copy.column("a", Dtype::f64)), (std::vector<double>{1, -3}));
        EXPECT_EQ(copy.strings("class"), (Strings{"x\"", "y"}));
      }
    });
  }
}

TEST_F(Csv, AColumnThatIsNotThereIsAnError) {
  const CsvTable table = read("a,b,a\n1,2,3\n");
  EXPECT_TRUE(throws<lockstep::IndexError>([&] { table.column("z"); },
                                           "data.csv: there is no column \"z\""));
  EXPECT_TRUE(
      throws<lockstep::IndexError>([&] { table.column(3); }, "there is no column 3, there are 3"));
  EXPECT_THROW(table.column(-1), lockstep::IndexError);
  EXPECT_TRUE(
      throws<lockstep::ValueError>([&] { table.column("a"); }, "two columns are called \"a\""));
  EXPECT_EQ(values_of<float>(table.column(2)), std::vector<float>{3});
  EXPECT_TRUE(throws<lockstep::IndexError>([&] { read("1", {.header = false}).column("a"); },
                                           "\"a\", nor names of columns"));
}

TEST_F(Csv, BrokenFilesAreErrorsThatNameTheLine) {
  const auto fails = [&](const std::string& text, const char* message) {
    return throws<DataError>([&] { read(text); }, message);
  };
  EXPECT_TRUE(fails("a,b\n1,2\n\n1,2,3\n",
                    "data.csv: line 4: the row has 3 fields, but the first row has 2"));
  EXPECT_TRUE(fails("a,b\n1\n", "line 2: the row has 1 field, but"));
  EXPECT_TRUE(fails("a\n\"1\n2", "line 2: a quote that begins a field is not followed by"));
  EXPECT_TRUE(fails("a\n\"", "line 2: a quote that begins a field is not followed by"));
  EXPECT_TRUE(fails("a,b\n1,\"2\"3\n", "line 2: field 1 goes on after the quote that ends it"));
  EXPECT_TRUE(fails("a,b\n1,2\"3\"\n", "line 2: field 1 has a quote in it"));
  EXPECT_TRUE(fails("a\rb\r", "line 1: field 0 has a carriage return in it"));
  EXPECT_TRUE(throws<DataError>([&] { read_csv(directory_ / "none.csv"); }, "none.csv",
                                "cannot be opened"));
}

TEST_F(Csv, ATruncatedPackedFileIsAnError) {
  std::string text = "a\n";
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919 % 10007) + "\n";
  write_gzip(path_, text);
  const std::string bytes = lockstep::testing::read_file(path_);
  EXPECT_EQ(read_csv(path_).size(), 20000);
  for (const std::size_t size : {bytes.size() / 2, bytes.size() - 3}) {
    write_file(path_, bytes.substr(0, size));
    EXPECT_TRUE(throws<DataError>([&] { read_csv(path_); },
                                  "data.csv: truncated: ", " of the unpacked stream ("));
  }
}

// Whatever is cut out of a file, what is left is a table or a DataError.
TEST_F(Csv, NoDamageCrashes) {
  const std::string text = "a,\"b\"\"\"\r\n\"1\n\",2\r\n3,\"\"\n";
  for (std::size_t first = 0; first < text.size(); ++first) {
    for (std::size_t last = first; last <= text.size(); ++last) {
      try {
        const CsvTable table = read(text.substr(0, first) + text.substr(last));
        for (std::int64_t i = 0; i < table.column_count(); ++i) {
          EXPECT_EQ(static_cast<std::int64_t>(table.strings(i).size()), table.size());
        }
      } catch (const DataError&) {
        continue;
      }
    }
  }
}

}  // namespace csv_test
