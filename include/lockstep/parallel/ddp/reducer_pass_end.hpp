// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <lockstep/config.hpp>

#include <memory>
#include <utility>

namespace lockstep::detail {

// Belongs to the callback at the end of a pass. Tells `Owner`, if it is still there, that the pass
// has come to its end (`finish`), and, when the callback is dropped, that nothing more comes of it
// (`abandon`). If the pass fails, the thread that called backward drops it.
template <class Owner>
class PassEnd {
 public:
  explicit PassEnd(std::weak_ptr<Owner> owner) : owner_(std::move(owner)) {}
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  ~PassEnd() {
    if (const auto self = owner_.lock()) self->abandon();
  }
  void reached() const {
    if (const auto self = owner_.lock()) self->finish();
  }

 private:
  const std::weak_ptr<Owner> owner_;
};

}  // namespace lockstep::detail
