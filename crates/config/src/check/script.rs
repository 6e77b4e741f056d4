//! Checks of the table `script` of a route that need the other tables.

use std::path::Path;

use super::Checker;
use crate::file;
use crate::spanned::Spanned;

impl Checker<'_> {
    /// Checks the table `script`. `files` is the directory of the files beside the scripts, if there is one.
    pub(super) fn script(&mut self, script: &mut file::ScriptTable, files: Option<&Path>) {
        let is_component = script.kind.is_component();
        let by_extension = script.kind.is_cgi() && script.extensions.is_some();
        let file::ScriptTable { directory, root, file: program, .. } = script;
        if let (true, None, None, None) = (by_extension, &*directory, &*root, &*program) {
            *root = files.map(|files| Spanned::detached(files.to_owned()));
        }
        if let Some(program) = program {
            if program.as_os_str().is_empty() {
                self.problem(&program.span, "script: file is empty");
            }
            program.value = self.absolute(program);
            // A component is not a program: it is checked where components are known.
            if !is_component {
                self.look_up_later("file", &program.value, &program.span);
            }
        }
        let file::ScriptTable { directory, root, command, interpreter, .. } = script;
        self.sendfile_root("script", &mut script.sendfile_root);
        for files in script.files.iter_mut().flat_map(|files| &mut files.value) {
            if files.path.as_os_str().is_empty() {
                self.problem(&files.path.span, "script: files: path is empty");
            }
            files.path.value = self.absolute(&files.path);
            self.look_up_later("files", &files.path.value, &files.path.span);
        }
        if script.kind.value.has_host() && directory.is_none() {
            *directory = Some(Spanned::detached(self.absolute(Path::new(""))));
        }
        if let Some(connect) = &mut script.connect {
            let place = connect.span.clone();
            for address in &mut connect.value.0 {
                // A single address has no span; the span of the key stands for it.
                address.span = address.span.take().or_else(|| place.clone());
                self.socket_in(&mut address.value);
            }
        }
        // A bare name is searched in `PATH`.
        let program = command.as_mut().and_then(|command| command.value.first_mut());
        for program in program.into_iter().chain(interpreter) {
            if program.contains('/') {
                program.value = self.absolute(Path::new(&program.value)).display().to_string();
            }
        }
        for (key, directory) in [("directory", directory), ("root", root)] {
            let Some(directory) = directory else { continue };
            if directory.as_os_str().is_empty() {
                self.problem(&directory.span, format!("script: {key} is empty"));
            }
            directory.value = self.absolute(directory);
            self.look_up_later(key, &directory.value, &directory.span);
        }
    }

    /// Makes the directories of files that `X-Sendfile` can name absolute.
    pub(super) fn sendfile_root(
        &mut self,
        table: &str,
        roots: &mut Option<Spanned<file::OneOrMany<String>>>,
    ) {
        let Some(roots) = roots else { return };
        for root in &mut roots.value.0 {
            let place = root.span.clone().or_else(|| roots.span.clone());
            if root.is_empty() {
                self.problem(&place, format!("{table}: sendfile_root is empty"));
            }
            let path = self.absolute(Path::new(&root.value));
            self.look_up_later("sendfile_root", &path, &place);
            root.value = path.display().to_string();
        }
    }

    /// Reports a user that a server without root privileges cannot switch scripts to.
    pub(super) fn script_user(&mut self, script: &file::ScriptTable) {
        let Some(server) = &self.leaves_root_for else { return };
        let user = script.user.as_ref().map(|user| ("user", &user.span));
        let switched = user.or(script.group.as_ref().map(|group| ("group", &group.span)));
        let Some((key, place)) = switched else { return };
        let what = format!(
            "script: `{key}` takes a server that stays root, and [server] has user = {server:?}"
        );
        self.problem(place, what);
    }
}
