import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";
import { _addPreopen } from "@bytecodealliance/preview2-shim/filesystem";

_addPreopen("/", "/"); // the tool is a component itself: without this it cannot read wit/
const { component } = await componentize({ sourcePath: "hello.js", witPath: "wit", worldName: "hello" });
await writeFile("hello-js.wasm", component);
