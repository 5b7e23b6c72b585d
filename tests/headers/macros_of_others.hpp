// SPDX-License-Identifier: Apache-2.0
#pragma once

// What C libraries leave defined before a program includes lockstep: here each is something that no
// declaration compiles with.

// X11/X.h, X11/Xlib.h and X11/Xutil.h.
#define Above 0x
#define AllValues 0x
#define AllocAll 0x
#define AllocNone 0x
#define Always 0x
#define AsyncBoth 0x
#define BadAlloc 0x
#define BadLength 0x
#define BadMatch 0x
#define BadName 0x
#define BadRequest 0x
#define BadValue 0x
#define Below 0x
#define Bool 0x
#define BottomIf 0x
#define Button1 0x
#define CapRound 0x
#define ClientMessage 0x
#define Complex 0x
#define Convex 0x
#define CopyFromParent 0x
#define CreateNotify 0x
#define CurrentTime 0x
#define DestroyAll 0x
#define DirectColor 0x
#define Expose 0x
#define False 0x
#define FocusIn 0x
#define FocusOut 0x
#define GenericEvent 0x
#define GrabSuccess 0x
#define GrayScale 0x
#define HeightValue 0x
#define InactiveState 0x
#define InputHint 0x
#define InputOnly 0x
#define InputOutput 0x
#define JoinRound 0x
#define KeyPress 0x
#define MapNotify 0x
#define NoSymbol 0x
#define NoValue 0x
#define None 0x
#define NormalState 0x
#define NotUseful 0x
#define Opposite 0x
#define ParentRelative 0x
#define Status 0x
#define Success 0x
#define SyncBoth 0x
#define TopIf 0x
#define True 0x
#define Unsorted 0x
#define VisibilityNotify 0x
#define WhenMapped 0x
#define WidthValue 0x

// complex.h.
#define I 0x

// sys/param.h, and what programs have of Windows.
#define CONST 0x
#define DELETE 0x
#define ERROR 0x
#define FALSE 0x
#define IN 0x
#define MAX(a, b) 0x
#define MIN(a, b) 0x
#define OPTIONAL 0x
#define OUT 0x
#define TRUE 0x
#define VOID 0x
