// Quasar's table with the cells of the console's tables. Its slots are part of this component: a slot that NiceGUI has
// as text is built again whenever anything on the page changes, and what is built again loses the keyboard's focus.
//
// Events: request (Quasar's), act {name, key}. Rows: _to, an address; _bad, names of columns; _actions, names.
export default {
  template: `
    <q-table @update:pagination="() => {}">
      <template #header-cell="props">
        <q-th :props="props" :aria-sort="props.col.sortable ? 'none' : undefined">
          <button v-if="props.col.sortable" type="button" class="table-sort">{{ props.col.label }}</button>
          <span v-else>{{ props.col.label }}</span>
        </q-th>
      </template>
      <template #body-cell="props">
        <q-td :props="props" :class="{'text-bad': (props.row._bad || []).includes(props.col.name)}">
          <template v-if="props.col.name === '_actions'">
            <q-btn v-for="name in props.row._actions" :key="name" :label="name" flat dense no-caps class="table-action"
              @click="$emit('act', {name: name, key: props.key})" />
          </template>
          <a v-else-if="props.col.name === lead && props.row._to" :href="props.row._to"
            class="table-link">{{ props.value }}</a>
          <button v-else-if="props.col.name === lead && opens" type="button" class="table-link"
            @click="$emit('act', {name: 'open', key: props.key})">{{ props.value }}</button>
          <template v-else>{{ props.value }}</template>
        </q-td>
      </template>
      <template #no-data="props"><span>{{ props.message }}</span></template>
    </q-table>
  `,
  props: {
    lead: String, // the name of the first column
    opens: Boolean, // its cells are buttons
  },
  emits: ["act"],
};
