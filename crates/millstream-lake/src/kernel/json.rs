//! Commits: lines of JSON.

use std::io::Cursor;
use std::sync::Arc;

use arrow_json::ReaderBuilder;
use delta_kernel::engine::arrow_utils::{
    build_json_reorder_indices, fixup_json_read, json_arrow_schema, parse_json, to_json_bytes,
};
use delta_kernel::schema::SchemaRef;
use delta_kernel::{
    EngineData, FileDataReadResultIterator, FileMeta, FileSize, FilteredEngineData, JsonHandler,
    KernelResult, KernelResultIterator, PredicateRef,
};
use url::Url;

use super::faults::{Faults, unreadable};
use super::{kernel_error, name_of};
use crate::store::{REQUESTS_IN_FLIGHT_MAX, TableStore};

pub(super) struct Json {
    pub(super) store: TableStore,
    pub(super) faults: Arc<Faults>,
}

type Actions = Vec<KernelResult<Box<dyn EngineData>>>;

impl JsonHandler for Json {
    fn parse_json(
        &self,
        json_strings: Box<dyn EngineData>,
        output_schema: SchemaRef,
    ) -> KernelResult<Box<dyn EngineData>> {
        parse_json(json_strings, output_schema)
    }

    /// Fetches some files at once, and decodes them one by one as they are asked for.
    fn read_json_files(
        &self,
        files: &[FileMeta],
        physical_schema: SchemaRef,
        _predicate: Option<PredicateRef>,
    ) -> KernelResult<FileDataReadResultIterator> {
        let groups: Vec<Vec<FileMeta>> =
            files.chunks(REQUESTS_IN_FLIGHT_MAX).map(<[_]>::to_vec).collect();
        let (store, faults) = (self.store.clone(), Arc::clone(&self.faults));
        let decoded = groups.into_iter().flat_map(move |group| {
            match read_group(&store, &group, &physical_schema) {
                Ok(actions) => actions,
                Err(error) => {
                    if let [only] = &group[..]
                        && let Ok(name) = name_of(&store, &only.location)
                    {
                        faults.note(&name, &error);
                    }
                    vec![Err(error)]
                }
            }
        });
        Ok(Box::new(decoded))
    }

    fn write_json_file(
        &self,
        path: &Url,
        data: KernelResultIterator<'_, FilteredEngineData>,
        overwrite: bool,
    ) -> KernelResult<FileSize> {
        let bytes = to_json_bytes(data)?;
        let (name, size) = (name_of(&self.store, path)?, bytes.len() as FileSize);
        let put = if overwrite {
            self.store.put(&name, bytes.into())
        } else {
            self.store.put_new(&name, bytes.into())
        };
        put.map(|()| size).map_err(|error| kernel_error(path, error))
    }
}

fn read_group(store: &TableStore, group: &[FileMeta], schema: &SchemaRef) -> KernelResult<Actions> {
    let names: Vec<_> =
        group.iter().map(|file| name_of(store, &file.location)).collect::<KernelResult<_>>()?;
    let contents = store.get_many(&names).map_err(|error| kernel_error(store.url(), error))?;
    let (arrow_schema, order) =
        (Arc::new(json_arrow_schema(schema)?), build_json_reorder_indices(schema)?);
    let mut actions: Actions = Vec::new();
    for ((file, name), content) in group.iter().zip(&names).zip(contents) {
        let reader = ReaderBuilder::new(Arc::clone(&arrow_schema))
            .with_coerce_primitive(true)
            .build(Cursor::new(content))?;
        for rows in reader {
            let rows = rows.map_err(|error| unreadable(name, &error))?;
            let rows = fixup_json_read(rows, &order, file.location.as_str())?;
            actions.push(Ok(Box::new(rows)));
        }
    }
    Ok(actions)
}
